//go:build search && !race

package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestNewcomersWithoutMemoryAndARealRedis(t *testing.T) {
	srv := redistest.New(t)
	rdb := srv.Client(t, oneDial)
	srv.Kill()
	newcomers(t, hybridlimit.TokenBucket(5, time.Hour, 5), rdb)
}
