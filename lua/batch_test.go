package lua_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

var ten = hybridlimit.TokenBucket(10, time.Second, 5) // 100 000 sub-units per unit, one refilled per µs

func envelope(seq int64) wire.Envelope {
	return wire.Envelope{Key: "env", Epoch: "epoch", Seq: seq, TTL: time.Minute}
}

func owe(key string, n int64) wire.Op {
	return wire.Op{Key: key, Limit: ten, Op: algo.Op{Owed: n}}
}

func ask(key string, n ...int64) wire.Op {
	return wire.Op{Key: key, Limit: ten, Op: algo.Op{Asks: n}}
}

// A batch with an unreadable part is refused as a whole: valid ops before the invalid one
// are not applied either.
func TestBadBatchWritesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.batch(t, envelope(1), []wire.Op{owe("a", 1), owe("b", 2)}, start)
		before := st.dump(t)
		ops := []wire.Op{owe("a", 1), owe("b", 1), owe("new", 1)}
		ops[2].Demand = 1 // otherwise the batch has the short form
		keys, argv := wire.EncodeBatch(envelope(2), ops)
		header, limit, op := argv[0], argv[1], argv[2]
		for name, change := range map[string]func(keys, argv []string) ([]string, []string){
			"nothing":            func(_, _ []string) ([]string, []string) { return nil, nil },
			"no header":          func(k, a []string) ([]string, []string) { return k, slices.Delete(a, 0, 1) },
			"no arguments":       func(k, _ []string) ([]string, []string) { return k, nil },
			"a key too many":     func(k, a []string) ([]string, []string) { return append(k, "more"), a },
			"a key missing":      func(k, a []string) ([]string, []string) { return k[:len(k)-1], a },
			"only the envelope":  func(k, a []string) ([]string, []string) { return k[:1], a[:2] },
			"no keys":            func(_, a []string) ([]string, []string) { return nil, a[:2] },
			"an op too many":     func(k, a []string) ([]string, []string) { return k, append(a, op) },
			"an op missing":      func(k, a []string) ([]string, []string) { return k, a[:len(a)-1] },
			"a limit missing":    func(k, a []string) ([]string, []string) { return k, slices.Delete(a, 1, 2) },
			"another schema":     set(0, "2"+header[1:]),
			"no schema":          set(0, header[2:]),
			"negative sequence":  set(0, "1 -2 60000 1"),
			"huge sequence":      set(0, "1 9007199254740992 60000 1"),
			"too many limits":    set(0, "1 2 60000 4"),
			"endless limits":     set(0, "1 2 60000 99999999999999999999"),
			"no time to live":    set(0, "1 2 0 1"),
			"endless life":       set(0, "1 2 99999999999999999999 1"),
			"unknown algorithm":  set(1, "x"+limit[1:]),
			"no unit":            set(1, "b 0 1 500000"),
			"no refill":          set(1, "b 100000 0 500000"),
			"no room for a unit": set(1, "b 100000 1 99999"),
			"limit out of range": set(1, "b 1 1 9007199254740991"),
			"limit with more":    set(1, limit+" 1"),
			"limit unknown":      set(4, "2"+op[1:]),
			"limit zero":         set(4, "0"+op[1:]),
			"empty op":           set(4, ""),
			"short op":           set(4, op[:len(op)-2]),
			"negative owed":      set(4, strings.Replace(op, "1 1", "1 -1", 1)),
			"fraction owed":      set(4, strings.Replace(op, "1 1", "1 1.5", 1)),
			"flags of 8":         set(4, strings.Replace(op, "1 1 0", "1 1 8", 1)),
			// Regressions: the text after the eighth number was searched for asks
			// and not checked, so these counted as no ask, or as 7.
			"negative ask":  set(4, op+" -7"),
			"words":         set(4, op+" x"),
			"ask and words": set(4, op+" 7x"),
			"double space":  set(4, op+"  7"),
			"line end":      set(4, op+"\n"),
			"unknown more":  set(4, op+" x5"),
			"more of words": set(4, op+" w5x"),
			"id of two":     set(4, op+" ia b"),
			"id unescaped":  set(4, op+" ia{b"),
			"window unfit":  set(1, "f 0 1000000 1"),
			"window long":   set(1, "f 1 9007199254740991 1"),
			"window large":  set(1, "s 90071992547 1000000 1"),
			"no tick":       set(1, "s 10 1000000 0"),
			"all enveloped": set(0, header+" all"),
			"unknown flag":  set(0, header+" some"),
			"flag glued":    set(0, header+"all"),
		} {
			t.Run(name, func(t *testing.T) {
				k, a := change(slices.Clone(keys), slices.Clone(argv))
				_, err := st.run(lua.Batch, k, a)
				if err == nil || !strings.Contains(err.Error(), "HLBATCH ") {
					t.Errorf("error = %v, want HLBATCH", err)
				}
				if after := st.dump(t); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	})
}

// An op of an all-or-nothing batch may only ask, because a refusal would have to undo its
// other effects. In such a batch one key has one limit.
func TestAllOrNothingOnlyAsks(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		fine := ask("k", 1)
		for name, op := range map[string]algo.Op{
			"owed": {Owed: 1}, "refund": {Refund: 1}, "reset": {Reset: true}, "in part": {Asks: []int64{1}, Partial: true},
			"patient": {Asks: []int64{1}, MaxDelay: 5}, "lease": {Div: 1, Demand: 5}, "view": {View: wire.View{Born: 1}}, "ledger": {Gen: 1},
		} {
			keys, argv := wire.EncodeAll([]wire.Op{fine, {Key: "other", Limit: ten, Op: op}})
			if raw, err := st.run(lua.Batch, keys, argv); err == nil || !strings.Contains(err.Error(), "HLBATCH op 2 does more than ask") {
				t.Errorf("%s: %v, %v", name, raw, err)
			}
		}
		keys, argv := wire.EncodeAll([]wire.Op{fine, {Key: "k", Limit: hybridlimit.PerSecond(9), Op: algo.Op{Asks: []int64{1}}}})
		if raw, err := st.run(lua.Batch, keys, argv); err == nil || !strings.Contains(err.Error(), "HLBATCH two limits on one key") {
			t.Errorf("%v, %v", raw, err)
		}
		if left := st.dump(t); left != "" {
			t.Errorf("left %s", left)
		}
	})
}

// If one ask of an all-or-nothing batch does not fit, nothing is written, for any
// algorithm. Each op gets the time at which it and the earlier ops on its key would fit.
func TestAllOrNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for i, limit := range everyKind { // five units each
			op := func(key string, n ...int64) wire.Op {
				return wire.Op{Key: key, Limit: limit, Op: algo.Op{Asks: n, ID: "x"}}
			}
			st.del(t, "a", "b")
			got := st.all(t, []wire.Op{op("a", 2), op("b", 1, 1), op("a", 1), op("b")}, start)
			if got.Refused || got.Answers[0].Granted != 2 || got.Answers[1].Granted != 2 || got.Answers[2].Granted != 1 || got.Answers[3].Granted != 0 {
				t.Errorf("%v: %+v", limit, got)
			}
			before := st.dump(t)
			ops := []wire.Op{op("b", 3), op("a", 2), op("a", 1), ask("c", 5), op("a", 9)}
			got = st.all(t, ops, start)
			for j, a := range got.Answers {
				fits := j == 0 || j == 1 || j == 3
				if a.Granted != 0 || (a.Retry == 0) != fits || (a.Retry == algo.Never) != (j == 4) || a.Level != []int64{3, 2, 2, 5, 2}[j]*unitOf(ops[j].Limit) {
					t.Errorf("%v, op %d: %+v", limit, j, a)
				}
			}
			if !got.Refused || st.dump(t) != before {
				t.Errorf("%v: %+v\nbefore\n%s\nafter\n%s", limit, got, before, st.dump(t))
			}
			// The batch fits at the retry, and not a µs earlier.
			wait := got.Answers[2].Retry
			again := []wire.Op{op("b", 3), op("a", 2), op("a", 1)}
			if early := st.all(t, again, start+wait-1); !early.Refused {
				t.Errorf("kind %d: granted a µs early: %+v", i, early)
			}
			if late := st.all(t, again, start+wait); late.Refused {
				t.Errorf("kind %d: refused when it should fit: %+v", i, late)
			}
		}
	})
}

func set(i int, text string) func(keys, argv []string) ([]string, []string) {
	return func(k, a []string) ([]string, []string) {
		a[i] = text
		return k, a
	}
}

// Regression: SET refuses a TTL of 0, and did so after the states were written. The debits
// had no envelope, and the retry applied them again.
func TestEnvelopeWithoutLifeDebitsNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		env := envelope(1)
		env.TTL = 999 * time.Microsecond // 0 ms
		keys, argv := wire.EncodeBatch(env, []wire.Op{owe("k", 1)})
		if _, err := st.run(lua.Batch, keys, argv); err == nil {
			t.Error("no error")
		}
		if got := st.dump(t); got != "" {
			t.Errorf("the batch left %s", got)
		}
	})
}

func TestSeenBatchIsNotAppliedAgain(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		ops := []wire.Op{owe("a", 3), {Key: "b", Limit: ten, Op: algo.Op{Owed: 2, Asks: []int64{1, 9}}}, {Key: "a", Limit: ten, Op: algo.Op{Demand: 1e6, Div: 1}}}
		first := st.batch(t, envelope(1), ops, start)
		if first.Seen || first.Stale || first.Gap || first.Epoch != start || first.Now != start {
			t.Fatalf("first: %+v", first)
		}
		if first.Answers[1].Granted != 1 || first.Answers[2].Lease != 2 {
			t.Fatalf("first: %+v", first)
		}
		want := st.get(t, "a") + st.get(t, "b")
		for i := int64(1); i < 4; i++ {
			again := st.batch(t, envelope(1), ops, start+i*1000)
			if !again.Seen || again.Stale || again.Gap || again.Epoch != start {
				t.Fatalf("again: %+v", again)
			}
			for j, a := range again.Answers {
				f := first.Answers[j]
				if a.Granted != f.Granted || a.Lease != f.Lease || a.Life != f.Life || a.Born != f.Born {
					t.Errorf("op %d: %+v, first %+v", j, a, f)
				}
			}
			// The level is the current one, so that the view is current too.
			if a := again.Answers[2]; a.Level != i*1000 || a.Retry != 100_000-i*1000 {
				t.Errorf("level %d, retry %d", a.Level, a.Retry)
			}
			if got := st.get(t, "a") + st.get(t, "b"); got != want {
				t.Errorf("states %s, were %s", got, want)
			}
		}
		if next := st.batch(t, envelope(2), ops[:1], start+5000); next.Seen || next.Gap || next.Answers[0].Level != -295_000 {
			t.Errorf("next: %+v", next)
		}
	})
}

func TestStaleBatchDoesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for seq := int64(1); seq <= 3; seq++ {
			st.batch(t, envelope(seq), []wire.Op{owe("k", 1)}, start)
		}
		before := st.dump(t)
		for seq := int64(1); seq <= 2; seq++ {
			r := st.batch(t, envelope(seq), []wire.Op{owe("k", 1)}, start+1)
			if !r.Stale || r.Seen || len(r.Answers) != 0 || r.Epoch != start {
				t.Errorf("%d: %+v", seq, r)
			}
		}
		if after := st.dump(t); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})
}

func TestGapIsFlagged(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			seq  int64
			lose bool
			gap  bool
		}{
			{seq: 1}, {seq: 2}, {seq: 4, gap: true}, {seq: 5}, {seq: 6, lose: true, gap: true}, {seq: 7}, {seq: 1, lose: true}, {seq: 9, gap: true},
		} {
			if tc.lose {
				st.del(t, "env")
			}
			if r := st.batch(t, envelope(tc.seq), []wire.Op{owe("k", 1)}, start); r.Gap != tc.gap || r.Seen || r.Stale {
				t.Errorf("%+v: %+v", tc, r)
			}
		}
	})
}

// A wipe changes the epoch, and nothing else does.
func TestEpochChangesWithAWipe(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for i, step := range []struct {
			env  wire.Envelope
			wipe bool
			want int64
		}{
			{env: envelope(1), want: start},
			{env: envelope(2), want: start},
			{env: wire.Envelope{Key: "env of another", Epoch: "epoch", Seq: 1, TTL: time.Second}, want: start},
			{env: envelope(3), wipe: true, want: start + 3},
			{env: envelope(3), want: start + 3},
		} {
			if step.wipe {
				st.rdb.FlushAll(context.Background())
			}
			if r := st.batch(t, step.env, []wire.Op{owe("k", 1)}, start+int64(i)); r.Epoch != step.want {
				t.Errorf("step %d: epoch %d, want %d", i, r.Epoch, step.want)
			}
		}
	})
}

// A server that is out of memory refuses the first write of a batch, and so the whole
// batch.
func TestOutOfMemoryWritesNothing(t *testing.T) {
	st := realStore(t)
	st.batch(t, envelope(1), []wire.Op{owe("a", 1)}, start)
	before := st.dump(t)
	ctx := context.Background()
	if err := st.rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	keys, argv := wire.EncodeBatch(envelope(2), []wire.Op{owe("a", 1), owe("b", 1), owe("c", 1)})
	if _, err := st.run(lua.Batch, keys, argv); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("error %v", err)
	}
	if after := st.dump(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	st.rdb.ConfigSet(ctx, "maxmemory", "0")
	if r := st.batch(t, envelope(2), []wire.Op{owe("a", 1)}, start); r.Seen || r.Gap || r.Answers[0].Level != 300_000 {
		t.Errorf("%+v", r)
	}
}

// In a seen batch, only an op whose key was lost runs again.
func TestSeenBatchRunsLostKeysAgain(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		ops := []wire.Op{owe("kept", 1), owe("lost", 2), owe("reborn", 3), owe("lost", 1)}
		st.batch(t, envelope(1), ops, start)
		st.del(t, "lost", "reborn")
		st.one(t, "reborn", ten, algo.Op{Owed: 1}, start+10)
		for i := int64(0); i < 3; i++ { // it runs again only once
			r := st.batch(t, envelope(1), ops, start+20+i)
			if !r.Seen {
				t.Fatalf("%+v", r)
			}
			for key, want := range map[string]string{
				"kept":   bucketText(100000, 400000, 0, start, 1),
				"lost":   bucketText(100000, 200000, 0, start+20, 3),
				"reborn": bucketText(100000, 100010, 10, start+10, 4),
			} {
				if got := st.get(t, key); got != want {
					t.Errorf("%s: %q, want %q", key, got, want)
				}
			}
		}
	})
}

func TestSameKeyTwice(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		fresh := []wire.Op{ask("k"), ask("k", 3), ask("k", 3), ask("k", 2), ask("k")}
		r := st.batch(t, wire.Envelope{}, fresh, start)
		for i, want := range []int64{500_000, 200_000, 200_000, 0, 0} {
			if got := r.Answers[i].Level; got != want {
				t.Errorf("op %d left a level of %d, want %d", i, got, want)
			}
		}
		if got := st.get(t, "k"); got != bucketText(100000, 0, 0, start, 5) {
			t.Error(got)
		}
		// Under two limits in one batch, the state of the last one is stored.
		odd := hybridlimit.TokenBucket(3, 7*time.Second, 50)
		r = st.batch(t, wire.Envelope{}, []wire.Op{owe("k", 2), {Key: "k", Limit: odd}, owe("k", 1), {Key: "k", Limit: odd}}, start)
		for i, want := range []int64{-200_000, -14_000_000, -300_000, -21_000_000} {
			if got := r.Answers[i].Level; got != want {
				t.Errorf("op %d left %d, want %d", i, got, want)
			}
		}
		if got := st.get(t, "k"); got != bucketText(7000000, -21000000, 0, start, 8)+" r3" {
			t.Error(got)
		}
	})
}

// Regression: an op that changed nothing left its limit's full bucket to the next op on the
// key. The next op was then refused units that its larger limit permits.
func TestPeekUnderASmallerLimit(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		large := hybridlimit.TokenBucket(10, time.Second, 50)
		r := st.batch(t, wire.Envelope{}, []wire.Op{ask("k"), {Key: "k", Limit: large, Op: algo.Op{Asks: []int64{50}}}}, start)
		if got := r.Answers[1].Granted; got != 50 {
			t.Errorf("granted %d of a full bucket of 50", got)
		}
	})
}

func TestFullBatch(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		var ops []wire.Op
		for i := range wire.MaxOps {
			ops = append(ops, owe("k"+strconv.Itoa(i), 1+int64(i%5)))
		}
		for seq := int64(1); seq < 3; seq++ {
			st.batch(t, envelope(seq), ops, start)
			r := st.batch(t, envelope(seq), ops, start)
			if !r.Seen || len(r.Answers) != wire.MaxOps {
				t.Fatalf("%+v", r)
			}
		}
		last := wire.MaxOps - 1
		want := int64(500_000 - 2*(1+last%5)*100_000)
		if a := st.one(t, "k"+strconv.Itoa(last), ten, algo.Op{}, start); a.Level != want {
			t.Errorf("%+v, want level %d", a, want)
		}
	})
}

func TestEmptyBatch(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		if r := st.batch(t, wire.Envelope{}, nil, start); r.Now != start || len(r.Answers) != 0 {
			t.Errorf("%+v", r)
		}
		if r := st.batch(t, envelope(1), nil, start); r.Epoch != start {
			t.Errorf("%+v", r)
		}
		if r := st.batch(t, envelope(1), nil, start); !r.Seen {
			t.Errorf("%+v", r)
		}
	})
}
