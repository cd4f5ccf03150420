package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// machine describes the machine and the versions of the measurement.
type machine struct {
	cpu, system, redis, malloc string
	loadBefore, loadAfter      string
	versions                   []string // of the compared modules
}

// named has the modules whose version is relevant to the figures.
var named = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/ulule/limiter/v3",
	"github.com/throttled/throttled/v2", "github.com/zeromicro/go-zero", "github.com/hashicorp/golang-lru/v2", "golang.org/x/time",
}

func thisMachine(ctx context.Context, srv *server) (machine, error) {
	m := machine{
		cpu:    fmt.Sprintf("%s, %d cores, GOMAXPROCS %d", benchkit.CPU(), runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		system: runtime.GOOS + "/" + runtime.GOARCH, loadBefore: benchkit.LoadAverage(),
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
	versions := benchkit.Modules()
	for _, path := range named {
		if v := versions[path]; v != "" {
			m.versions = append(m.versions, strings.TrimPrefix(path, "github.com/")+" "+v)
		}
	}
	return m, nil
}
