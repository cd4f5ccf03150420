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

// bytesOfAKey returns the bytes of a key without its name, which has the given length. fill puts all keys into a limiter.
func bytesOfAKey(keys, name int, fill func(names []string) any) int64 {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("%0*d", name, i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := fill(names)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(l)
	runtime.KeepAlive(names)
	return int64(after.HeapAlloc-before.HeapAlloc)/int64(keys) - int64(name)
}

// TestMemoryOfARunningKey checks that a key with one running call needs the memory that the comment of ConcurrencyLimiter names.
func TestMemoryOfARunningKey(t *testing.T) {
	const keys, name, says = 20_000, 32, 140
	held := make([]hybridlimit.Permit, 0, keys)
	each := bytesOfAKey(keys, name, func(names []string) any {
		l := permits(t, hybridlimit.Concurrent(1), ConcurrencyConfig{MaxKeys: keys})
		for _, key := range names {
			held = append(held, take(t, l, key, 1))
		}
		return l
	})
	runtime.KeepAlive(held)
	t.Logf("%d bytes a key", each)
	if each < says*9/10 || each > says*11/10 {
		t.Errorf("%d bytes a key, the comment says %d", each, says)
	}
}

// TestMemoryOfAKey checks that a key without its name needs the memory that
// docs/limits.md documents, within a tenth: 190 to 260 bytes, and in a log 24 for each
// call. BenchmarkMemory measures more keys.
func TestMemoryOfAKey(t *testing.T) {
	const keys, name = 20_000, 32
	says := map[hybridlimit.Algorithm]int64{
		hybridlimit.AlgTokenBucket: 190, hybridlimit.AlgLeakyBucket: 190, hybridlimit.AlgLeakyQueue: 205,
		hybridlimit.AlgFixedWindow: 205, hybridlimit.AlgSlidingWindow: 220, hybridlimit.AlgSlidingLog: 260,
	}
	if n := unsafe.Sizeof(call{}); n != 24 {
		t.Errorf("an entry of a log has %d bytes", n)
	}
	eachAlgorithm(t, 1000, time.Hour, func(t *testing.T, limit hybridlimit.Limit) {
		each := bytesOfAKey(keys, name, func(names []string) any {
			l := must(t, limit, Config{MaxKeys: 2 * keys})
			for _, key := range names {
				if _, err := l.Allow(context.Background(), key); err != nil {
					t.Fatal(err)
				}
			}
			return l
		})
		t.Logf("%v: %d bytes a key", limit, each)
		if want := says[limit.Algorithm]; each < want*9/10 || each > want*11/10 {
			t.Errorf("%v: %d bytes a key, the page says %d", limit, each, want)
		}
	})
}

// TestMemoryAfterManyKeys checks that a key needs at most 45 bytes more after ten times as many keys have come and gone: the map
// of a shard grows once or twice beyond what its keys need.
func TestMemoryAfterManyKeys(t *testing.T) {
	const name = 32
	measure := func(rounds int) int64 {
		return bytesOfAKey(defaultMaxKeys, name, func([]string) any {
			l := must(t, hybridlimit.PerHour(5), Config{})
			for i := range rounds * defaultMaxKeys {
				if _, err := l.Allow(context.Background(), fmt.Sprintf("%0*d", name, i)); err != nil {
					t.Fatal(err)
				}
			}
			return l
		})
	}
	if once, often := measure(1), measure(10); often > once+45 {
		t.Errorf("%d bytes a key at first, %d after ten times as many", once, often)
	}
}
