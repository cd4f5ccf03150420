package benchkit

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// CPU returns the name of the processor, if Linux reports it.
func CPU() string {
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		return name
	}
	return "unknown CPU"
}

// Memory returns the size of the machine's memory.
func Memory() string {
	var kb int
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kb); err != nil {
		return "unknown memory"
	}
	return fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
}

// Kernel returns the system and, on Linux, its version.
func Kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	major, rest, _ := strings.Cut(strings.TrimSpace(string(release)), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return "Linux " + major + "." + minor
}

// LoadAverage returns the load average of the last minute, or "?" if it is unknown.
func LoadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	if load, _, ok := strings.Cut(string(text), " "); ok {
		return load
	}
	return "?"
}

// RedisServer returns the version of the installed redis-server.
func RedisServer() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if v := regexp.MustCompile(`v=(\S+)`).FindSubmatch(out); err == nil && v != nil {
		return string(v[1])
	}
	return "unknown"
}

// Modules returns the versions of this program's modules, by path.
func Modules() map[string]string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			versions[d.Path] = d.Version
		}
	}
	return versions
}

// field returns the first value of the given name in a file with lines "name: value".
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
