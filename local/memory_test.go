package local

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit"
)

// TestMemoryOfAKey checks that a key without its name needs the memory that
// docs/limits.md documents, within a tenth: 150 to 225 bytes, and in a log 24 for each
// call. The names have 32 bytes, so they do not lie in their entries. BenchmarkMemory
// measures more keys.
func TestMemoryOfAKey(t *testing.T) {
	const keys, name = 20_000, 32
	says := map[hybridlimit.Algorithm]int64{
		hybridlimit.AlgTokenBucket: 150, hybridlimit.AlgLeakyBucket: 150, hybridlimit.AlgLeakyQueue: 170,
		hybridlimit.AlgFixedWindow: 170, hybridlimit.AlgSlidingWindow: 185, hybridlimit.AlgSlidingLog: 225,
	}
	if n := unsafe.Sizeof(call{}); n != 24 {
		t.Errorf("an entry of a log has %d bytes", n)
	}
	eachAlgorithm(t, 1000, time.Hour, func(t *testing.T, limit hybridlimit.Limit) {
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprintf("%0*d", name, i)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		l := must(t, limit, Config{MaxKeys: 2 * keys})
		for _, key := range names {
			if _, err := l.Allow(context.Background(), key); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(names)
		each := int64(after.HeapAlloc-before.HeapAlloc)/keys - name
		t.Logf("%v: %d bytes a key", limit, each)
		if want := says[limit.Algorithm]; each < want*9/10 || each > want*11/10 {
			t.Errorf("%v: %d bytes a key, the page says %d", limit, each, want)
		}
	})
}
