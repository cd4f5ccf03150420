package lua_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Every state lives a little longer than its time to full plus the longest lease, on
// Redis's own clock.
func TestStateTTL(t *testing.T) {
	day := hybridlimit.TokenBucket(1, 24*time.Hour, 1)
	month := hybridlimit.TokenBucket(1, 24*time.Hour, 30)
	fast := hybridlimit.PerSecond(10_000_000)
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			name  string
			limit hybridlimit.Limit
			op    algo.Op
			full  time.Duration // time to full after the op
		}{
			{"one a day, spent", day, algo.Op{Asks: []int64{1}}, 24 * time.Hour},
			{"one a day, full debt", day, algo.Op{Owed: 9}, 48 * time.Hour},
			{"a month of days, full debt", month, algo.Op{Owed: 1000}, 60 * 24 * time.Hour},
			{"ten a second, one spent", ten, algo.Op{Asks: []int64{1}}, 100 * time.Millisecond},
			{"ten a second, full debt", ten, algo.Op{Owed: 10}, time.Second},
			{"ten million a second, one spent", fast, algo.Op{Owed: 1}, time.Microsecond},
			{"ten million a second, full debt", fast, algo.Op{Owed: 20_000_000}, 2 * time.Second},
		} {
			st.del(t, "k")
			sent := time.Now()
			st.one(t, "k", tc.limit, tc.op, 0)
			got := st.ttl(t, "k")
			need := tc.full + algo.Generation*time.Microsecond
			if spare := algo.ClockSlack * time.Microsecond; got < need+spare-time.Since(sent)-time.Millisecond || got > need+spare+time.Millisecond {
				t.Errorf("%s: TTL = %v, want %v plus the clock slack", tc.name, got, need)
			}
		}
	})
}

// TestTTLOfEveryKind is TestStateTTL for the other algorithms. A window lives until late
// units can no longer change it, a log until its last entry leaves.
func TestTTLOfEveryKind(t *testing.T) {
	const s, day = time.Second, 24 * time.Hour
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			limit hybridlimit.Limit
			op    algo.Op
			life  func(ends time.Duration) time.Duration // beyond 2 s
		}{
			{hybridlimit.LeakyQueue(1, day, 3), algo.Op{Asks: []int64{2}}, func(time.Duration) time.Duration { return 2 * day }},
			{hybridlimit.LeakyQueue(1, day, 3), algo.Op{Owed: 5}, func(time.Duration) time.Duration { return 5 * day }},
			{hybridlimit.TokenBucket(1, day, 3), algo.Op{Owed: 2, Refund: 2}, func(time.Duration) time.Duration { return 2 * day }},
			{hybridlimit.LeakyQueue(1, day, 3), algo.Op{Owed: 2, Refund: 1}, func(time.Duration) time.Duration { return 2 * day }},
			{hybridlimit.TokenBucket(1, day, 3), algo.Op{Reset: true}, func(time.Duration) time.Duration { return 6 * day }},
			{hybridlimit.FixedWindow(5, day), algo.Op{Asks: []int64{5}}, func(ends time.Duration) time.Duration { return ends + day }},
			{hybridlimit.FixedWindow(5, day), algo.Op{Owed: 6}, func(ends time.Duration) time.Duration { return ends + 2*day }},
			{hybridlimit.FixedWindow(5, time.Microsecond), algo.Op{Owed: 6}, func(time.Duration) time.Duration { return 0 }},
			{hybridlimit.SlidingWindow(5, day), algo.Op{Asks: []int64{5}}, func(ends time.Duration) time.Duration { return ends + day }},
			{hybridlimit.SlidingWindow(5, day), algo.Op{Owed: 60}, func(ends time.Duration) time.Duration { return ends + day }},
			{hybridlimit.SlidingWindow(5, day), algo.Op{Reset: true}, func(ends time.Duration) time.Duration { return ends + day }},
			{hybridlimit.SlidingLog(5, day), algo.Op{Asks: []int64{1, 1, 1}}, func(time.Duration) time.Duration { return day - s }},
			{hybridlimit.SlidingLog(5, day), algo.Op{Owed: 60}, func(time.Duration) time.Duration { return day - s }},
		} {
			st.del(t, "k")
			sent := time.Now()
			a := st.one(t, "k", tc.limit, tc.op, 0)
			got, want := st.ttl(t, "k"), tc.life(time.Duration(a.Ends)*time.Microsecond)+2*s
			if most := want + 2*time.Millisecond; got > most || got < want-time.Since(sent)-2*time.Millisecond {
				t.Errorf("%v, %+v: TTL %v, want %v", tc.limit, tc.op, got, want)
			}
		}
	})
}

// A batch does not write an epoch that lives for long enough: all processes of a tag share it.
func TestEpochIsWrittenSeldom(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.batch(t, envelope(1), []wire.Op{owe("k", 1)}, 0)
		before := st.get(t, "epoch")
		st.rdb.PExpire(context.Background(), "epoch", time.Hour)
		if r := st.batch(t, envelope(2), []wire.Op{owe("k", 1)}, 0); fmt.Sprint(r.Epoch) != before || st.get(t, "epoch") != before {
			t.Errorf("the epoch was %s; the reply has %d, and Redis %s", before, r.Epoch, st.get(t, "epoch"))
		}
		if got := st.ttl(t, "epoch"); got < 50*time.Minute {
			t.Errorf("the TTL is %v: the batch has written the epoch", got)
		}
		st.rdb.Persist(context.Background(), "epoch") // without a TTL it would stay for ever
		st.batch(t, envelope(3), []wire.Op{owe("k", 1)}, 0)
		if got := st.ttl(t, "epoch"); got <= 0 || got > time.Minute+time.Second {
			t.Errorf("the TTL of an epoch without one is %v after a batch", got)
		}
	})
}

// Every batch gives the envelope the TTL of its header, even a seen batch, and the epoch up to a second more.
func TestEnvelopeTTL(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, seq := range []int64{1, 1, 2} {
			for _, key := range []string{"env", "epoch"} {
				st.rdb.PExpire(context.Background(), key, 3*time.Second)
			}
			sent := time.Now()
			st.batch(t, envelope(seq), []wire.Op{owe("k", 1)}, 0)
			for key, more := range map[string]time.Duration{"env": 0, "epoch": time.Second} {
				if got := st.ttl(t, key); got > time.Minute+more || got < time.Minute-time.Since(sent)-time.Millisecond {
					t.Errorf("batch %d: the TTL of %s = %v, want a minute", seq, key, got)
				}
			}
		}
	})
}

// An op that changes nothing creates no key and writes none.
func TestPeekAndDenialCreateNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for name, op := range map[string]algo.Op{
			"peek": {}, "above the burst": {Asks: []int64{6}}, "a lease without demand": {Div: 1},
			"view of a full bucket": {View: wire.View{Level: 500_000, At: start, Born: 1}},
		} {
			a := st.one(t, "k", ten, op, start)
			if got := st.dump(t); got != "" || a.Born != 0 || a.Level != 500_000 {
				t.Errorf("%s: %+v left %q", name, a, got)
			}
		}
		st.one(t, "k", ten, algo.Op{Owed: 5}, start)
		st.rdb.Persist(context.Background(), "k")
		before := st.dump(t)
		for _, op := range []algo.Op{{}, {Asks: []int64{1}}, {Asks: []int64{1}, Partial: true}, {Demand: 1e9}} {
			a := st.one(t, "k", ten, op, start+5)
			if after := st.dump(t); after != before || st.ttl(t, "k") != -1 || a.Born != start || a.Level != 5 {
				t.Errorf("%+v: %+v\nbefore %s\nafter  %s", op, a, before, after)
			}
		}
	})
}

// Every key has a TTL after random batches of all kinds of ops.
func TestEveryKeyHasATTL(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		d := newDiffer(t, st, slices.Concat(diffLimits, diffQueues, diffWindows(hybridlimit.FixedWindow), diffWindows(hybridlimit.SlidingWindow)))
		ctx := context.Background()
		for seq := int64(1); seq < 60; seq++ {
			ops := make([]wire.Op, 1+d.rng.IntN(20))
			for i := range ops {
				ops[i] = d.op()
			}
			env := envelope(seq)
			if d.rng.IntN(3) == 0 {
				env = wire.Envelope{}
				log := diffWindows(hybridlimit.SlidingLog)
				ops[0] = wire.Op{Key: d.key(), Limit: log[d.rng.IntN(len(log))], Op: ops[0].Op}
			}
			reply := st.batch(t, env, ops, 0)
			for i, op := range ops {
				a := reply.Answers[i]
				d.seen[op.Key] = append(d.seen[op.Key], wire.View{Level: a.Level, At: reply.Now, Born: a.Born})
			}
		}
		for _, key := range st.rdb.Keys(ctx, "*").Val() {
			if ttl := st.ttl(t, key); ttl <= 0 {
				t.Errorf("%s: TTL %v", key, ttl)
			}
		}
	})
}
