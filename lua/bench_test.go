package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// syncKinds are the kinds of sync that package hybrid makes for keys in use.
var syncKinds = []struct {
	name string
	op   algo.Op
}{
	{"owed", algo.Op{Owed: 7}},
	{"owed+lease", algo.Op{Owed: 7, Demand: 200_000, Div: 20}},
	{"owed+ask+lease", algo.Op{Owed: 7, Asks: []int64{1}, Demand: 200_000, Div: 20}},
	{"owed+64asks", algo.Op{Owed: 7, Asks: slices.Repeat([]int64{1}, 64), Demand: 200_000, Div: 20}},
}

const benchTag = "hl:v2:{11}:"

// syncBatch returns size ops of one kind, on keys as long as an API key.
func syncBatch(op algo.Op, size int, seq int64) (wire.Envelope, []wire.Op) {
	// The bucket is neither full nor empty during the run, so that leases are granted.
	limit := hybridlimit.TokenBucket(1000, time.Second, 1_000_000_000)
	env := wire.Envelope{
		Key:   benchTag + "@env:0123456789abcdef0123456789abcdef",
		Epoch: benchTag + "@epoch", Seq: seq, TTL: 10 * time.Minute,
	}
	ops := make([]wire.Op, size)
	for i := range ops {
		ops[i] = wire.Op{Key: fmt.Sprintf("%sapi:customer-%08d", benchTag, i), Limit: limit, Op: op}
	}
	return env, ops
}

// BenchmarkRedisTime measures the time that a batch takes in a real Redis. redis-µs/batch
// is the usec_per_call of INFO commandstats over the run. Every op carries the view of its
// key, and the states exist. MaxOps is based on these figures: docs/decisions.
func BenchmarkRedisTime(b *testing.B) {
	for _, kind := range syncKinds {
		for _, size := range []int{1, 32, 64, 96, 128} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, size), func(b *testing.B) { redisTime(b, realStore(b), "evalsha", kind.op, size) })
			b.Run(fmt.Sprintf("%s/%d/functions", kind.name, size), func(b *testing.B) {
				redisTime(b, functionStore(b), "fcall", kind.op, size)
			})
		}
	}
}

func redisTime(b *testing.B, st store, command string, op algo.Op, size int) {
	b.Helper()
	env, ops := syncBatch(op, size, 1)
	views(ops, st.batch(b, env, ops, 0))
	if err := st.rdb.ConfigResetStat(context.Background()).Err(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		env.Seq++
		views(ops, st.batch(b, env, ops, 0))
	}
	perCall := usecPerCall(b, st.rdb, command)
	b.ReportMetric(perCall, "redis-µs/batch")
	b.ReportMetric(perCall/float64(size), "redis-µs/op")
}

// views sets the views of the next ops from the answers of Redis.
func views(ops []wire.Op, r wire.Reply) {
	for i, a := range r.Answers {
		ops[i].View = wire.View{Level: a.Level, At: r.Now, Born: a.Born}
	}
}

func usecPerCall(b *testing.B, rdb *redis.Client, command string) float64 {
	b.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, ok := strings.Cut(info, "cmdstat_"+command+":")
	_, rest, ok2 := strings.Cut(rest, "usec_per_call=")
	text, _, ok3 := strings.Cut(rest, ",")
	usec, err := strconv.ParseFloat(text, 64)
	if !ok || !ok2 || !ok3 || err != nil {
		b.Fatalf("INFO commandstats without %s: %q", command, info)
	}
	return usec
}

func BenchmarkEncodeBatch(b *testing.B) {
	for _, size := range []int{1, wire.MaxOps} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			env, ops := syncBatch(syncKinds[1].op, size, 1)
			for i := range ops {
				ops[i].View = wire.View{Level: 1_234_567, At: start, Born: start - 1_000_000}
			}
			b.ReportAllocs()
			for b.Loop() {
				wire.EncodeBatch(env, ops)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/exchange")
		})
	}
}

// BenchmarkFunctionLoad measures the time that Redis takes to load a library that it
// already has, without and with REPLACE: docs/decisions.
func BenchmarkFunctionLoad(b *testing.B) {
	for _, how := range []string{"known", "replace"} {
		b.Run(how, func(b *testing.B) {
			st := functionStore(b)
			ctx := context.Background()
			if err := st.rdb.ConfigResetStat(ctx).Err(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if how == "replace" {
					st.rdb.FunctionLoadReplace(ctx, lua.Library.Source)
				} else {
					st.rdb.FunctionLoad(ctx, lua.Library.Source)
				}
			}
			b.ReportMetric(usecPerCall(b, st.rdb, "function|load"), "redis-µs/load")
		})
	}
}
