package lua_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// innerCalls returns the commands that the scripts of f run in Redis.
func innerCalls(t *testing.T, st store, f func()) string {
	t.Helper()
	ctx := context.Background()
	if err := st.rdb.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	f()
	got := map[string]string{}
	for line := range strings.Lines(st.rdb.Info(ctx, "commandstats").Val()) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if count, _, _ := strings.Cut(rest, ","); ok && !strings.HasPrefix(name, "eval") && !strings.Contains(name, "config") && name != "info" {
			got[name] = count
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		list = append(list, fmt.Sprintf("%s %s", name, got[name]))
	}
	return strings.Join(list, ", ")
}

// TestInnerCalls checks the commands that a call of one op runs in Redis. README.md has
// them in a table.
func TestInnerCalls(t *testing.T) {
	st := realStore(t)
	calls := func(limit hybridlimit.Limit, op algo.Op) string {
		return innerCalls(t, st, func() { st.one(t, "k", limit, op, 0) })
	}
	ask := algo.Op{Asks: []int64{1}}
	hour := testenv.OpenWindow(time.Now(), 1, time.Hour)
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, time.Hour, 1), hybridlimit.LeakyQueue(1, time.Hour, 1),
		hybridlimit.FixedWindow(1, hour), hybridlimit.SlidingWindow(1, hour),
	} {
		st.del(t, "k")
		for what, want := range []string{"mget 1, set 1, time 1", "mget 1, time 1"} {
			if got := calls(limit, ask); got != want {
				t.Errorf("%v, call %d: %s", limit, what, got)
			}
		}
	}
	st.del(t, "k")
	log := hybridlimit.SlidingLog(3, time.Hour)
	for what, want := range []string{
		"mget 1, pexpire 1, time 1, zadd 1, zrange 1", "mget 1, pexpire 1, time 1, zadd 1, zcard 1, zcount 1, zrange 2",
		"mget 1, pexpire 1, time 1, zadd 1, zcard 1, zcount 1, zrange 3", // looks up the retry as well
		"mget 1, time 1, zcard 1, zcount 1, zrange 3",
	} {
		if got := calls(log, ask); got != want {
			t.Errorf("%v, call %d: %s", log, what, got)
		}
	}
}

// BenchmarkExactCall measures the time that one exact call takes in a real Redis, by
// algorithm, granted and refused.
func BenchmarkExactCall(b *testing.B) {
	for _, tc := range []struct {
		name  string
		limit func(n int64) hybridlimit.Limit
	}{
		{"bucket", func(n int64) hybridlimit.Limit { return hybridlimit.TokenBucket(1, 24*time.Hour, n) }},
		{"queue", func(n int64) hybridlimit.Limit { return hybridlimit.LeakyQueue(1, 24*time.Hour, n) }},
		{"fixed", func(n int64) hybridlimit.Limit { return hybridlimit.FixedWindow(n, 24*time.Hour) }},
		{"sliding", func(n int64) hybridlimit.Limit { return hybridlimit.SlidingWindow(n, 24*time.Hour) }},
		{"log", func(n int64) hybridlimit.Limit { return hybridlimit.SlidingLog(n, 24*time.Hour) }},
	} {
		for what, n := range map[string]int64{"granted": 50_000, "refused": 1000} {
			b.Run(tc.name+"/"+what, func(b *testing.B) {
				st, limit := realStore(b), tc.limit(n)
				for i := int64(0); what == "refused" && i < n; i += 100 {
					st.one(b, "k", limit, algo.Op{Asks: slices.Repeat([]int64{1}, 100)}, 0)
				}
				if err := st.rdb.ConfigResetStat(context.Background()).Err(); err != nil {
					b.Fatal(err)
				}
				op := []wire.Op{{Key: "k", Limit: limit, Op: algo.Op{Asks: []int64{1}}}}
				for b.Loop() {
					st.batch(b, wire.Envelope{}, op, 0)
				}
				b.ReportMetric(usecPerCall(b, st.rdb, "evalsha"), "redis-µs/call")
			})
		}
	}
}

// BenchmarkPlainAsks measures the time that a batch of plain asks takes in a real Redis, for several keys and for calls on one key.
func BenchmarkPlainAsks(b *testing.B) {
	limit := hybridlimit.TokenBucket(1000, time.Second, 1_000_000_000)
	for _, size := range []int{1, 8, wire.MaxOps} {
		for _, keys := range slices.Compact([]int{1, size}) {
			b.Run(fmt.Sprintf("%d asks, %d keys", size, keys), func(b *testing.B) {
				st, ops := realStore(b), make([]wire.Op, size)
				for i := range ops {
					ops[i] = wire.Op{Key: fmt.Sprintf("%sapi:customer-%08d", benchTag, i%keys), Limit: limit, Op: algo.Op{Asks: []int64{1}}}
				}
				st.batch(b, wire.Envelope{}, ops, 0)
				if err := st.rdb.ConfigResetStat(context.Background()).Err(); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					st.batch(b, wire.Envelope{}, ops, 0)
				}
				b.ReportMetric(usecPerCall(b, st.rdb, "evalsha")/float64(size), "redis-µs/ask")
			})
		}
	}
}

// BenchmarkHistory measures the time that a page of a long log takes in a real Redis.
func BenchmarkHistory(b *testing.B) {
	for _, most := range []int{100, wire.MaxHistory} {
		b.Run(fmt.Sprint(most), func(b *testing.B) {
			st, limit := realStore(b), hybridlimit.SlidingLog(10_000, 24*time.Hour)
			for range 100 {
				st.one(b, "k", limit, algo.Op{Asks: slices.Repeat([]int64{1}, 100), ID: "0191f2a4-7c1e-7d60-b5a3-2f4c8e9d1a77"}, 0)
			}
			first := st.page(b, "k", limit, 0, 1, 0).Log[0].At
			if err := st.rdb.ConfigResetStat(context.Background()).Err(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if p := st.page(b, "k", limit, first+2000, most, 0); len(p.Log) != most {
					b.Fatalf("%d entries", len(p.Log))
				}
			}
			b.ReportMetric(usecPerCall(b, st.rdb, "evalsha"), "redis-µs/call")
		})
	}
}
