package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// machine is where and with what was measured.
type machine struct {
	cpu, system, redis, malloc string
	loadBefore, loadAfter      string
	versions                   []string // of what is compared
}

// named are the modules whose version says something about the figures.
var named = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/ulule/limiter/v3",
	"github.com/throttled/throttled/v2", "github.com/zeromicro/go-zero", "github.com/hashicorp/golang-lru/v2", "golang.org/x/time",
}

func thisMachine(ctx context.Context, srv *server) (machine, error) {
	m := machine{
		cpu:    fmt.Sprintf("%s, %d cores, GOMAXPROCS %d", cpuModel(), runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		system: runtime.GOOS + "/" + runtime.GOARCH, loadBefore: loadAverage(),
	}
	fields, err := srv.info(ctx, "server")
	if err != nil {
		return m, err
	}
	m.redis = fields["redis_version"]
	if fields, err = srv.info(ctx, "memory"); err != nil {
		return m, err
	}
	m.malloc = fields["mem_allocator"]
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(named, d.Path) {
				m.versions = append(m.versions, strings.TrimPrefix(d.Path, "github.com/")+" "+d.Version)
			}
		}
	}
	return m, nil
}

// cpuModel is what Linux says; elsewhere it is not known.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(text), "model name")
	_, rest, _ = strings.Cut(rest, ":")
	model, _, ok := strings.Cut(rest, "\n")
	if !ok {
		return "unknown CPU"
	}
	return strings.TrimSpace(model)
}

// loadAverage is of the last minute, "?" where it is not known.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, ok := strings.Cut(string(text), " ")
	if !ok {
		return "?"
	}
	return load
}
