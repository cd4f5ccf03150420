//go:build !race

package notice_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// TestMemoryOfAKey measures the memory of a Limiter and of each key of 32 bytes in it.
func TestMemoryOfAKey(t *testing.T) {
	const keys = 50_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	use := func(l hybridlimit.Limiter) {
		for i := range keys {
			ask(t, l, fmt.Sprintf("customer-%023d", i), 1)
		}
	}
	l := newLocal(t, hybridlimit.FixedWindow(1000, testenv.OpenWindow(time.Now(), 1000, time.Hour)), local.Config{})
	use(l)
	bare := heap()
	n := watch(t, l, notice.Config{On: func(notice.Crossing) {}})
	made := heap()
	use(n)
	each := (heap() - made) / keys
	t.Logf("a Limiter takes %d bytes, a key %d", made-bare, each)
	if made-bare > 800_000 || each > 500 {
		t.Error("more than the package documentation says")
	}
	if s := n.Stats(); s.Keys != keys {
		t.Errorf("%+v", s)
	}
}
