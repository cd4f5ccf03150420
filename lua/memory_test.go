package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// needJemalloc skips a test whose byte counts depend on jemalloc's size classes if the
// server has another allocator. It skips in CI as well, because no package could be
// installed to change that.
func needJemalloc(t *testing.T, st store) {
	t.Helper()
	info := st.rdb.Info(context.Background(), "memory").Val()
	if other, ok := otherAllocator(info); ok {
		t.Skipf("SKIPPED: THE FIGURES ARE OF JEMALLOC'S SIZE CLASSES, AND THIS SERVER ALLOCATES WITH %q (mem_allocator of INFO memory)", other)
	}
}

// otherAllocator returns the allocator that INFO memory names, and reports whether it is
// not jemalloc.
func otherAllocator(info string) (name string, other bool) {
	for line := range strings.Lines(info) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "mem_allocator:"); ok {
			return name, !strings.HasPrefix(name, "jemalloc")
		}
	}
	return "", true
}

func TestAllocators(t *testing.T) {
	for info, want := range map[string]bool{
		"# Memory\r\nused_memory:1\r\nmem_allocator:jemalloc-5.3.0\r\n": false,
		"# Memory\r\nmem_allocator:libc\r\nactive_defrag_running:0\r\n": true,
		"# Memory\r\nmem_allocator:tcmalloc-2.9\r\n":                    true,
		"": true,
	} {
		if name, other := otherAllocator(info); other != want {
			t.Errorf("%q: allocator %q, other = %v", info, name, other)
		}
	}
}

// TestMemoryOfAKey checks the memory of a state by MEMORY USAGE, under a Redis key of 20
// bytes. A caller's key of 20 bytes makes a Redis key of 35, which costs 16 bytes more.
// Redis embeds up to 44 bytes of text in the object; more text costs 16 bytes.
func TestMemoryOfAKey(t *testing.T) {
	const year = 365 * 24 * time.Hour
	st := realStore(t)
	needJemalloc(t, st)
	key := "hl:v2:{11}:api:user7" // 20 bytes
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		op    algo.Op
		later time.Duration
		most  int64 // bytes
	}{
		{"bucket, just born", hybridlimit.PerSecond(100), algo.Op{Owed: 1}, 0, 120},
		{"bucket, a minute old", hybridlimit.PerSecond(100), algo.Op{Owed: 70}, time.Minute, 120},
		{"bucket, an hour old", hybridlimit.PerSecond(100), algo.Op{Owed: 70}, time.Hour, 120},
		{"bucket, a year old, in debt", hybridlimit.PerMinute(1000), algo.Op{Owed: 1_900}, year, 136},
		{"bucket, one a day, a year old", hybridlimit.TokenBucket(1, 24*time.Hour, 100), algo.Op{Owed: 199}, year, 136},
		{"bucket, a lease in the ledger", hybridlimit.PerSecond(100), algo.Op{Demand: 1e6, Div: 2}, time.Minute, 136},
		{"bucket, after units came back", hybridlimit.PerSecond(100), algo.Op{Owed: 70, Refund: 60}, time.Hour, 120},
		{"bucket, after a reset", hybridlimit.PerSecond(100), algo.Op{Reset: true}, time.Hour, 136},
		{"queue, an hour old", hybridlimit.LeakyQueue(100, time.Second, 0), algo.Op{Owed: 70}, time.Hour, 120},
		{"fixed window, an hour old", hybridlimit.FixedWindow(100, time.Second), algo.Op{Owed: 70}, time.Hour, 120},
		{"sliding window, an hour old", hybridlimit.SlidingWindow(100, time.Second), algo.Op{Owed: 70}, time.Hour, 120},
		{"sliding window of a day, a year old", hybridlimit.SlidingWindow(1_000_000, 24*time.Hour), algo.Op{Owed: 700_000}, year, 136},
	} {
		st.del(t, key)
		st.one(t, key, tc.limit, algo.Op{Owed: 1}, start)
		st.one(t, key, tc.limit, tc.op, start+tc.later.Microseconds())
		bytes, err := st.rdb.MemoryUsage(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, %q", tc.name, bytes, st.get(t, key))
		if bytes > tc.most {
			t.Errorf("%s: %d bytes, at most %d", tc.name, bytes, tc.most)
		}
	}
}

// The memory of a log grows with its entries.
func TestMemoryOfALog(t *testing.T) {
	st := realStore(t)
	for _, tc := range []struct {
		entries, most int64 // bytes in all
	}{{1, 140}, {100, 5_000}, {1000, 130_000}, {10_000, 1_300_000}} {
		st.del(t, "hl:v2:{11}:api:user7")
		for i := int64(0); i < tc.entries; i += 100 {
			n := int(min(100, tc.entries-i))
			op := algo.Op{Asks: slices.Repeat([]int64{1}, n)}
			st.one(t, "hl:v2:{11}:api:user7", hybridlimit.SlidingLog(tc.entries, time.Hour), op, start+i)
		}
		bytes, err := st.rdb.Do(context.Background(), "MEMORY", "USAGE", "hl:v2:{11}:api:user7", "SAMPLES", "0").Int64()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d entries: %d bytes, %.0f each", tc.entries, bytes, float64(bytes)/float64(tc.entries))
		if bytes > tc.most {
			t.Errorf("%d entries: %d bytes, at most %d", tc.entries, bytes, tc.most)
		}
	}
}

// The memory of an envelope grows with the ops of the process's last batch.
func TestMemoryOfAnEnvelope(t *testing.T) {
	st := realStore(t)
	env := wire.Envelope{Key: "hl:v2:{11}:@env:0123456789abcdef0123456789abcdef", Epoch: "hl:v2:{11}:@epoch", Seq: 1_000_000, TTL: time.Minute}
	for _, n := range []int{1, wire.MaxOps} {
		var ops []wire.Op
		for i := range n {
			ops = append(ops, wire.Op{Key: fmt.Sprint("k", i), Limit: hybridlimit.PerSecond(1000), Op: algo.Op{Owed: 7, Asks: []int64{1}, Demand: 2e5, Div: 20}})
		}
		env.Seq++
		st.batch(t, env, ops, start)
		bytes, err := st.rdb.MemoryUsage(context.Background(), env.Key).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d ops: %d bytes, %q", n, bytes, st.get(t, env.Key)[:min(60, len(st.get(t, env.Key)))])
		if most := int64(200 + 32*n); bytes > most {
			t.Errorf("%d ops: %d bytes, at most %d", n, bytes, most)
		}
	}
}
