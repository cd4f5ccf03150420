package benchkit

import (
	"cmp"
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
	return cmp.Or(field("/proc/cpuinfo", "model name"), "unknown CPU")
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
	load, _, _ := strings.Cut(string(text), " ")
	return cmp.Or(load, "?")
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
	text, _ := os.ReadFile(file)
	value := regexp.MustCompile(`(?m)^` + name + `\s*:\s*(.*)$`).FindSubmatch(text)
	if value == nil {
		return ""
	}
	return string(value[1])
}
