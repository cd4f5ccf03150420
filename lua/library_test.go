package lua_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Redis has the functions under the names that this package calls.
func TestLibraryOnRedis(t *testing.T) {
	st := functionStore(t)
	got, err := st.rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: lua.Library.Name}).Result()
	if err != nil || len(got) != 1 || len(got[0].Functions) != len(lua.Scripts()) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, f := range got[0].Functions {
		if !slices.Contains(lua.Library.Functions(), f.Name) || len(f.Flags) > 0 {
			t.Errorf("function %+v", f)
		}
	}
}

// Loading the library again changes nothing, whether it is in use or not.
func TestLoadReplace(t *testing.T) {
	st := functionStore(t)
	limit := hybridlimit.TokenBucket(1, time.Hour, 100)
	for i := range int64(5) {
		name, err := st.rdb.FunctionLoadReplace(t.Context(), lua.Library.Source).Result()
		if err != nil || name != lua.Library.Name {
			t.Fatalf("%s, %v", name, err)
		}
		a := st.one(t, "k", limit, algo.Op{Asks: []int64{10}}, 0)
		if left := algo.BucketOf(limit).Units(a.Level); left != 90-10*i {
			t.Errorf("load %d: %d units left", i, left)
		}
	}
	if err := st.rdb.FunctionLoad(t.Context(), lua.Library.Source).Err(); !redis.HasErrorPrefix(err, "Library '"+lua.Library.Name+"' already exists") {
		t.Errorf("without REPLACE: %v", err)
	}
}

// During an upgrade, a fleet runs two libraries on one state.
func TestLibrariesSideBySide(t *testing.T) {
	st := functionStore(t)
	if err := st.rdb.FunctionLoad(t.Context(), lua.OtherLibrary.Source).Err(); err != nil {
		t.Fatal(err)
	}
	limit := hybridlimit.TokenBucket(1, time.Hour, 100)
	ops := []wire.Op{{Key: "k", Limit: limit, Op: algo.Op{Asks: []int64{1}}}}
	keys, argv := wire.EncodeBatch(wire.Envelope{}, ops)
	take := func(function string) {
		t.Helper()
		raw, err := st.rdb.FCall(t.Context(), function, keys, argv[0]).Result()
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := wire.DecodeReply(raw, ops); err != nil || reply.Answers[0].Granted != 1 {
			t.Errorf("%+v, %v", reply, err)
		}
	}
	for range 5 {
		take(lua.Library.Batch)
		take(lua.OtherLibrary.Batch)
	}
	// The last process of the other version has ended.
	if err := st.rdb.FunctionDelete(t.Context(), lua.OtherLibrary.Name).Err(); err != nil {
		t.Fatal(err)
	}
	take(lua.Library.Batch)
	if a := st.one(t, "k", limit, algo.Op{}, 0); algo.BucketOf(limit).Units(a.Level) != 100-11 {
		t.Errorf("two libraries left %+v", a)
	}
}

// EVALSHA and FCALL give the same answers and leave the same states.
func TestFunctionsEqualScripts(t *testing.T) {
	scripts, libs := realStore(t), functionStore(t)
	limits := slices.Concat(diffLimits, diffQueues, diffWindows(hybridlimit.FixedWindow), diffWindows(hybridlimit.SlidingWindow)) // no log: an envelope cannot hold it
	d := newDiffer(t, scripts, limits)                                                                                            // makes the ops
	ctx := context.Background()
	seq, seen := int64(1), 0
	var last []wire.Op // in an envelope
	for range testenv.Runs(400, 10_000) {
		d.now = max(d.now+d.step(), start/2)
		ops := make([]wire.Op, 1+d.rng.IntN(24))
		for i := range ops {
			ops[i] = d.op()
		}
		var env wire.Envelope
		if d.rng.IntN(3) > 0 { // the same sequence, the next one, or one missing
			if step := d.rng.Int64N(3); step > 0 || last == nil {
				seq, last = seq+step, ops
			}
			ops = last
			env = wire.Envelope{Key: "env", Epoch: "epoch", Seq: seq, TTL: time.Hour}
		}
		keys, argv := wire.EncodeBatch(env, ops)
		argv = append(argv, fmt.Sprint(d.now))
		want, err := scripts.run(lua.TimedBatch, keys, argv)
		got, err2 := libs.run(lua.TimedBatch, keys, argv)
		if err != nil || err2 != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nEVALSHA %v, %v\nFCALL   %v, %v", argv, want, err, got, err2)
		}
		reply, err := wire.DecodeReply(want, ops)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Seen {
			seen++
		}
		for i, a := range reply.Answers {
			d.seen[ops[i].Key] = append(d.seen[ops[i].Key], wire.View{Level: a.Level, At: d.now, Born: a.Born})
		}
		for _, st := range []store{scripts, libs} { // no key may expire: d's clock is not Redis's
			pipe := st.rdb.Pipeline()
			for _, k := range keys {
				pipe.Persist(ctx, k)
			}
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := scripts.dump(t), libs.dump(t); a != b || a == "" {
		t.Errorf("EVALSHA left\n%s\nFCALL left\n%s", a, b)
	}
	if seen == 0 {
		t.Error("no batch was repeated")
	}
}

// Scripts and functions refuse with the same error text. The client recognises a refusal by
// this text.
func TestFunctionsRefuseAlike(t *testing.T) {
	scripts, libs := realStore(t), functionStore(t)
	for _, argv := range [][]string{nil, {"x"}, {"2 0 0 0"}, {"1 0 0 1", "b 0 0 0"}, {"1 0 0 0", "y"}} {
		for _, script := range []lua.Script{lua.Batch, lua.Fleet, lua.Settings} {
			_, want := scripts.run(script, []string{"k"}, argv)
			_, got := libs.run(script, []string{"k"}, argv)
			if want == nil || got == nil || got.Error() != want.Error() {
				t.Errorf("%q: EVALSHA says %v, FCALL %v", argv, want, got)
			}
		}
	}
}

// miniredis has no functions, so only scripts are tested there. If this test fails,
// onEachStore can run functions on miniredis as well.
func TestFunctionsOnMiniredis(t *testing.T) {
	st := miniStore(t)
	redistest.NeedFunctions(t, st.rdb)
	t.Error("miniredis has functions: test them")
}
