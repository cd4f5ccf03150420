package main

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// machine describes the machine and the versions of the measurement.
type machine struct {
	revision string
	versions map[string]string // of modules
}

func thisMachine(revision string) machine {
	return machine{revision: cmp.Or(revision, "unknown"), versions: benchkit.Modules()}
}

// String describes the machine for the page.
func (m machine) String() string {
	return fmt.Sprintf("%s, GOMAXPROCS %d, %s, %s, %s, redis-server %s; revision %s",
		benchkit.CPU(), runtime.GOMAXPROCS(0), benchkit.Memory(), benchkit.Kernel(), runtime.Version(), benchkit.RedisServer(), m.revision)
}
