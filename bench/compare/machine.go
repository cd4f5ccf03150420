package main

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// origin describes the measurement. The file of rounds begins with it, as configuration of Go's benchmark format.
type origin struct {
	machine string            // and the revision of the code
	modules map[string]string // versions of the rivals by path
	slice   slice
}

func thisOrigin(revision string, d slice) origin {
	machine := fmt.Sprintf("%s, GOMAXPROCS %d, %s, %s, %s, redis-server %s; revision %s",
		benchkit.CPU(), runtime.GOMAXPROCS(0), benchkit.Memory(), benchkit.Kernel(), runtime.Version(),
		benchkit.RedisServer(), cmp.Or(revision, "unknown"))
	versions, modules := benchkit.Modules(), map[string]string{}
	for _, r := range everyone {
		if v := versions[r.Module]; v != "" {
			modules[r.Module] = v
		}
	}
	return origin{machine, modules, d}
}

func (o origin) String() string {
	var modules []string
	for _, path := range slices.Sorted(maps.Keys(o.modules)) {
		modules = append(modules, path+" "+o.modules[path])
	}
	return fmt.Sprintf("machine: %s\nmodules: %s\nturn: %v %v %v\n",
		o.machine, strings.Join(modules, ", "), o.slice.Warm, o.slice.Timed, o.slice.Single)
}

// readOrigin reads the configuration of a result.
func readOrigin(config func(key string) string) (o origin, err error) {
	o = origin{machine: config("machine"), modules: map[string]string{}}
	for module := range strings.SplitSeq(config("modules"), ", ") {
		path, version, _ := strings.Cut(module, " ")
		o.modules[path] = version
	}
	parts := strings.Fields(config("turn"))
	for i, part := range []*time.Duration{&o.slice.Warm, &o.slice.Timed, &o.slice.Single} {
		if len(parts) != 3 {
			return o, fmt.Errorf("turn: %q is not three durations", parts)
		}
		if *part, err = time.ParseDuration(parts[i]); err != nil {
			return o, err
		}
	}
	return o, nil
}
