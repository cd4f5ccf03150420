package lua_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Regression: one SET of a process's envelope key made each of its batches stale, for as
// long as the key existed.
func TestEnvelopeThatTheLibraryDidNotWrite(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		ctx := context.Background()
		now := st.redisTime(t)
		for name, tc := range map[string]struct {
			text  string
			ttl   time.Duration
			stale bool
		}{
			"its own, of a later batch": {fmt.Sprintf("1e900 %d 0 0 0", now), 30 * time.Second, true},
			"without a TTL":             {fmt.Sprintf("1e900 %d 0 0 0", now), 0, false},
			"a longer TTL than its own": {fmt.Sprintf("1e900 %d 0 0 0", now), time.Hour, false},
			"from the future":           {fmt.Sprintf("1e900 %d 0 0 0", now+time.Hour.Microseconds()), 30 * time.Second, false},
			"beyond 2^53":               {fmt.Sprintf("1e9007199254740992 %d 0 0 0", now), 30 * time.Second, false},
			"far beyond":                {fmt.Sprintf("1e99999999999999999999 %d 0 0 0", now), 30 * time.Second, false},
		} {
			st.del(t, "env", "epoch", "k")
			if err := st.rdb.Set(ctx, "env", tc.text, tc.ttl).Err(); err != nil {
				t.Fatal(err)
			}
			env := wire.Envelope{Key: "env", Epoch: "epoch", Seq: 5, TTL: time.Minute}
			r := st.batch(t, env, []wire.Op{owe("k", 2)}, 0)
			if r.Stale != tc.stale || !tc.stale && (!r.Gap || r.Answers[0].Level != 300_000) {
				t.Errorf("%s: %+v", name, r)
			}
			// An envelope that counted as none is replaced, and the next batch finds its own.
			env.Seq++
			if r := st.batch(t, env, []wire.Op{owe("k", 1)}, 0); r.Stale != tc.stale || r.Gap {
				t.Errorf("%s: the next batch: %+v", name, r)
			}
		}
	})
}

// Regression: a batch that came again after its envelope was evicted took its settled units
// off the ledger a second time. These were units of another process.
func TestBatchThatShowsAGapSettlesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		lease := func(process string, seq int64, op algo.Op) wire.Reply {
			env := wire.Envelope{Key: "env:" + process, Epoch: "epoch", Seq: seq, TTL: time.Minute}
			return st.batch(t, env, []wire.Op{{Key: "k", Limit: ten, Op: op}}, start)
		}
		demand := algo.Op{Demand: 1_000_000, Div: 2}
		lease("p", 1, demand)
		lease("q", 1, demand)
		p, q := lease("p", 2, demand), lease("q", 2, demand)
		held := st.out(t)
		if p.Answers[0].Gen == 0 && q.Answers[0].Gen == 0 && held == 0 {
			t.Fatalf("nothing is in the ledger: %+v, %+v", p, q)
		}
		gen := start / algo.Generation
		op := algo.Op{Gen: gen, Had: 1, Keep: 0, View: wire.View{Born: start, Level: 1, At: start}}
		lease("p", 3, op)
		if got := st.out(t); got != held-1 {
			t.Fatalf("the ledger went from %d to %d, want one less", held, got)
		}
		st.del(t, "env:p")
		if r := lease("p", 3, op); !r.Gap {
			t.Fatalf("no gap: %+v", r)
		}
		if got := st.out(t); got != held-1 {
			t.Errorf("the ledger has %d after the batch came again, want %d", got, held-1)
		}
	})
}

// out returns the units in the ledger of k.
func (st store) out(t *testing.T) int64 {
	t.Helper()
	s, ok := wire.DecodeState(st.get(t, "k"))
	if !ok {
		t.Fatalf("%q", st.get(t, "k"))
	}
	return s.Out[0] + s.Out[1]
}

// Regression: a hundred thousand members with scores in the future kept Redis busy for a
// quarter of a second with each heartbeat.
func TestMembersOfTheFutureAreWorkedOffInPieces(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		const members = 2000
		ahead := float64(st.redisTime(t) + time.Hour.Microseconds())
		var zs []redis.Z
		for i := range members {
			zs = append(zs, redis.Z{Score: ahead + float64(i), Member: fmt.Sprint("m", i)})
		}
		if err := st.rdb.ZAdd(context.Background(), fleetKey, zs...).Err(); err != nil {
			t.Fatal(err)
		}
		left := int64(members)
		for range 3 {
			if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Alive != members+1 {
				t.Errorf("%d alive, want %d: a count that is too low is unsafe", b.Alive, members+1)
			}
			future, err := st.rdb.ZCount(context.Background(), fleetKey, fmt.Sprintf("(%d", st.redisTime(t)+wire.MaxExpiry.Microseconds()), "+inf").Result()
			if err != nil || left-future > 100 || future >= left {
				t.Errorf("%d of %d members are still in the future, want 1 to 100 fewer; %v", future, left, err)
			}
			left = future
		}
	})
}

// An op with a delay has one ask only, because an answer has one delay. With two asks, 229
// units of a burst of 200 were granted.
func TestTwoAsksWithADelayAreRefused(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		keys, argv := wire.EncodeBatch(wire.Envelope{}, []wire.Op{{Key: "k", Limit: ten, Op: algo.Op{Asks: []int64{3, 4}, MaxDelay: 1000}}})
		if _, err := st.run(lua.Batch, keys, argv); !redis.HasErrorPrefix(err, "HLBATCH") {
			t.Errorf("%v", err)
		}
		if got := st.dump(t); got != "" {
			t.Errorf("left %q", got)
		}
	})
}
