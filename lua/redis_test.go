package lua_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// start is a time of Redis in µs: 2025-11-13, with as many digits as a time of today.
const start int64 = 1_763_000_000_000_000

// store is a Redis to run the library on.
type store struct {
	rdb       *redis.Client
	mini      *miniredis.Miniredis // nil for a real Redis
	functions bool                 // FCALL instead of EVALSHA
}

// onEachStore runs f on a real redis-server, over both protocols, on its
// functions, and on miniredis.
func onEachStore(t *testing.T, f func(t *testing.T, st store)) {
	t.Helper()
	for _, protocol := range []int{3, 2} {
		t.Run(fmt.Sprintf("redis/resp%d", protocol), func(t *testing.T) {
			f(t, pooledStore(t, func(o *redis.Options) { o.Protocol = protocol }))
		})
	}
	t.Run("functions", func(t *testing.T) { f(t, functionStore(t)) })
	t.Run("miniredis", func(t *testing.T) { f(t, miniStore(t)) })
}

func realStore(t testing.TB, opts ...func(*redis.Options)) store {
	t.Helper()
	return store{rdb: redistest.New(t).Client(t, opts...)}
}

// functionStore returns a store that runs the scripts as functions of the libraries.
func functionStore(t testing.TB) store {
	t.Helper()
	st := pooledStore(t)
	redistest.NeedFunctions(t, st.rdb)
	for _, l := range []lua.FunctionLibrary{lua.Library, lua.TimedLibrary} {
		if err := st.rdb.FunctionLoad(context.Background(), l.Source).Err(); err != nil {
			t.Fatal(err)
		}
	}
	st.functions = true
	return st
}

// functions maps a script's SHA to its function.
var functions = map[string]string{
	lua.Batch.SHA: lua.Library.Batch, lua.TimedBatch.SHA: lua.TimedLibrary.Batch, lua.Fleet.SHA: lua.Library.Heartbeat, lua.History.SHA: lua.Library.History,
	lua.Settings.SHA: lua.Library.Settings, lua.SetSwitch.SHA: lua.Library.SetSwitch, lua.SetLimit.SHA: lua.Library.SetLimit,
	lua.SetKeys.SHA: lua.Library.SetKeys,
}

func miniStore(t *testing.T) store {
	t.Helper()
	m := redistest.Mini(t)
	return store{rdb: redistest.Client(t, m.Addr()), mini: m}
}

// run calls EVALSHA, or EVAL if the script is not loaded. It calls FCALL if the store uses
// functions and the script has one.
func (st store) run(script lua.Script, keys, argv []string) (any, error) {
	args := make([]any, len(argv))
	for i, a := range argv {
		args[i] = a
	}
	ctx := context.Background()
	if name := functions[script.SHA]; st.functions && name != "" {
		return st.rdb.FCall(ctx, name, keys, args...).Result()
	}
	raw, err := st.rdb.EvalSha(ctx, script.SHA, keys, args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return st.rdb.Eval(ctx, script.Source, keys, args...).Result()
	}
	return raw, err
}

// batch runs a batch at now, or at Redis's time if now is 0.
func (st store) batch(t testing.TB, env wire.Envelope, ops []wire.Op, now int64) wire.Reply {
	t.Helper()
	keys, argv := wire.EncodeBatch(env, ops)
	return st.send(t, keys, argv, ops, now)
}

// all runs an all-or-nothing batch.
func (st store) all(t testing.TB, ops []wire.Op, now int64) wire.Reply {
	t.Helper()
	keys, argv := wire.EncodeAll(ops)
	return st.send(t, keys, argv, ops, now)
}

func (st store) send(t testing.TB, keys, argv []string, ops []wire.Op, now int64) wire.Reply {
	t.Helper()
	script := lua.Batch
	if now != 0 {
		script, argv = lua.TimedBatch, append(argv, strconv.FormatInt(now, 10))
	}
	raw, err := st.run(script, keys, argv)
	if err != nil {
		t.Fatalf("batch %q %+v: %v", argv[0], ops, err)
	}
	reply, err := wire.DecodeReply(raw, ops)
	if err != nil {
		t.Fatalf("batch %q %+v: %v", argv[0], ops, err)
	}
	return reply
}

// one runs a single op without an envelope.
func (st store) one(t testing.TB, key string, limit hybridlimit.Limit, op algo.Op, now int64) wire.Answer {
	t.Helper()
	return st.batch(t, wire.Envelope{}, []wire.Op{{Key: key, Limit: limit, Op: op}}, now).Answers[0]
}

func (st store) get(t testing.TB, key string) string {
	t.Helper()
	v, err := st.rdb.Get(context.Background(), key).Result()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return v
}

func (st store) set(t testing.TB, key, value string) {
	t.Helper()
	if err := st.rdb.Set(context.Background(), key, value, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func (st store) del(t testing.TB, keys ...string) {
	t.Helper()
	if err := st.rdb.Del(context.Background(), keys...).Err(); err != nil {
		t.Fatal(err)
	}
}

// ttl returns the PTTL of a key: -1 for a key without a TTL.
func (st store) ttl(t testing.TB, key string) time.Duration {
	t.Helper()
	d, err := st.rdb.PTTL(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dump returns all stored data, one line per key, to compare before and after.
func (st store) dump(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	keys, err := st.rdb.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, k := range keys {
		switch st.rdb.Type(ctx, k).Val() {
		case "string":
			all[k] = st.get(t, k)
		case "list":
			all[k] = fmt.Sprint(st.rdb.LRange(ctx, k, 0, -1).Val())
		case "hash":
			all[k] = fmt.Sprint(st.rdb.HGetAll(ctx, k).Val())
		case "zset":
			all[k] = fmt.Sprint(st.rdb.ZRangeWithScores(ctx, k, 0, -1).Val())
		}
	}
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, k+" = "+all[k])
	}
	return strings.Join(lines, "\n")
}

// bucketText returns the stored text of a bucket whose only fields are these.
func bucketText(unit, level, age, born, since int64) string {
	return lua.EncodeState(algo.State{Unit: unit, Refill: 1, Level: level, Last: born + age, Born: born, Since: since})
}

// ints returns a reply of integers.
func ints(values ...int64) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}
