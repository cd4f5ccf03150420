package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// machine is what the figures were measured on.
type machine struct {
	revision string
	versions map[string]string // of modules
}

func thisMachine(revision string) machine {
	m := machine{revision: cmp.Or(revision, "unknown"), versions: map[string]string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			m.versions[dep.Path] = dep.Version
		}
	}
	return m
}

// String is a sentence.
func (m machine) String() string {
	return fmt.Sprintf("%s, GOMAXPROCS %d, %s, %s, %s, redis-server %s; revision %s",
		cpuName(), runtime.GOMAXPROCS(0), memory(), kernel(), runtime.Version(), redisVersion(), m.revision)
}

func cpuName() string {
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		return name
	}
	return "unknown CPU"
}

func memory() string {
	var kb int
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kb); err != nil {
		return "unknown memory"
	}
	return fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	major, rest, _ := strings.Cut(strings.TrimSpace(string(release)), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return "Linux " + major + "." + minor
}

// field is the first value of that name in a file of lines "name: value".
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

func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if v := regexp.MustCompile(`v=(\S+)`).FindSubmatch(out); err == nil && v != nil {
		return string(v[1])
	}
	return "unknown"
}
