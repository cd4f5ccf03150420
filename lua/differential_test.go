package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/lua"
)

// The limits of the differential run: everyday ones, ones whose unit is no
// whole number of µs, and bursts at the end of the exact range.
var diffLimits = []hybridlimit.Limit{
	hybridlimit.PerSecond(10),
	hybridlimit.TokenBucket(1000, time.Second, 20),
	hybridlimit.TokenBucket(1, 24*time.Hour, 1),
	hybridlimit.TokenBucket(1, 24*time.Hour, 52_124), // edge: unit 8.64e10
	hybridlimit.PerSecond(10_000_000),
	hybridlimit.TokenBucket(10_000_000, time.Second, 1<<52-5), // edge: unit 1, refill 10
	hybridlimit.TokenBucket(3, 7*time.Second, 2),
	hybridlimit.TokenBucket(999_983, time.Hour, 1_250_999), // edge: a prime rate
	hybridlimit.TokenBucket(7, time.Second, 500),
	hybridlimit.TokenBucket(1, time.Microsecond, 1000),
	hybridlimit.LeakyBucket(100, time.Minute, 30),
}

type booked struct{ gen, units int64 }

// differ is one run of the same ops on a Redis and on the Go twin.
type differ struct {
	t     *testing.T
	st    store
	rng   *rand.Rand
	now   int64
	model map[string]algo.State
	old   map[string]algo.State // some time ago
	seen  map[string][]lua.View // what processes remember of a key
	held  map[string][]booked   // what the ledger holds for them
	home  map[string]hybridlimit.Limit
	ops   int
	saw   map[string]int // what the ops led to
}

func newDiffer(t *testing.T, st store) *differ {
	return &differ{
		t: t, st: st, rng: seeded(t), now: start, model: map[string]algo.State{}, old: map[string]algo.State{},
		seen: map[string][]lua.View{}, held: map[string][]booked{}, home: map[string]hybridlimit.Limit{}, saw: map[string]int{},
	}
}

// The library on Redis and the Go twin give the same answers, leave the same
// states, and ask for the same TTLs.
func TestLuaEqualsGo(t *testing.T) {
	for _, tc := range []struct {
		name  string
		store func(*testing.T) store
		ops   int
	}{
		{"redis/resp3", func(t *testing.T) store { return realStore(t) }, sized(8000, 200_000)},
		{"redis/resp2", func(t *testing.T) store { return realStore(t, func(o *redis.Options) { o.Protocol = 2 }) }, sized(2000, 50_000)},
		{"functions", func(t *testing.T) store { return functionStore(t) }, sized(3000, 200_000)},
		{"miniredis", miniStore, sized(3000, 200_000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, l := range diffLimits {
				if err := l.Validate(); err != nil {
					t.Fatal(err)
				}
			}
			d := newDiffer(t, tc.store(t))
			for d.ops < tc.ops && !t.Failed() {
				d.round()
			}
			t.Logf("%d ops: %v", d.ops, d.saw)
			if len(d.saw) != 13 {
				t.Error("the ops did not lead to everything they should")
			}
		})
	}
}

// round moves the clock, loses a key now and then, and runs one batch.
func (d *differ) round() {
	d.now = max(d.now+d.step(), start/2)
	if d.rng.IntN(8) == 0 {
		key := d.key()
		d.st.del(d.t, key)
		delete(d.model, key)
	}
	if d.rng.IntN(8) == 0 { // a key goes back to what it was
		key := d.key()
		if s, ok := d.model[key]; ok && d.old[key].Born != 0 && d.rng.IntN(2) == 0 {
			d.st.set(d.t, key, stateText(d.old[key]))
			d.model[key] = d.old[key]
		} else if ok {
			d.old[key] = s
		}
	}
	ops := make([]lua.Op, 1+d.rng.IntN(48))
	for i := range ops {
		ops[i] = d.op()
	}
	sent := time.Now()
	reply := d.st.batch(d.t, lua.Envelope{}, ops, d.now)
	if reply.Now != d.now || reply.Epoch != 0 || reply.Seen || reply.Stale || reply.Gap {
		d.t.Fatalf("reply %+v at %d", reply, d.now)
	}
	written := map[string]int64{} // TTL by key
	for i, op := range ops {
		b := algo.BucketOf(op.Limit)
		before := d.model[op.Key]
		next, want, dirty := b.Apply(before, op.Op, d.now)
		if got := reply.Answers[i]; got != want {
			d.t.Fatalf("op %d of %d at %d\nstate %+v\nlimit %v = %+v\nop    %+v\nredis %+v\ngo    %+v",
				i, len(ops), d.now, before, op.Limit, b, op.Op, got, want)
		}
		d.note(before, op.Op, want, b)
		if dirty {
			d.model[op.Key], written[op.Key] = next, b.TTL(next)
		} else if _, ok := written[op.Key]; ok {
			// A later op of another limit counts the state in its own terms.
			next.Last = d.model[op.Key].Last
			d.model[op.Key], written[op.Key] = next, b.TTL(next)
		}
		if want.Born != 0 {
			if want.Gen != 0 {
				d.held[op.Key] = append(d.held[op.Key], booked{want.Gen, op.Keep + want.Lease})
			}
			d.seen[op.Key] = append(d.seen[op.Key], lua.View{Level: want.Level, At: d.now, Born: want.Born})
		}
	}
	d.ops += len(ops)
	d.compare(written, sent)
}

// note counts what an op led to, so that a run cannot pass by being dull.
func (d *differ) note(s algo.State, op algo.Op, a algo.Answer, b algo.Bucket) {
	for what, is := range map[string]bool{
		"granted": a.Granted > 0, "leased": a.Lease > 0, "refused": a.Granted == 0 && len(op.Asks) > 0,
		"never": a.Retry == algo.Never, "debt": a.Level < 0, "floor": a.Level == -b.Cap,
		"frozen": s.Last > d.now, "other life": op.View.Born != 0 && op.View.Born != s.Born && s.Born != 0,
		"booked": a.Gen != 0 && a.Lease > 0, "renewed": a.Gen != 0 && op.Keep > 0, "not renewed": a.Gen == 0 && op.Keep > 0,
		"turn":        op.Div > 0 && a.Retry > 0 && a.Retry != algo.Never && a.Level >= b.Unit,
		"rolled back": s.Born != 0 && op.View.Born == s.Born && a.Born != s.Born,
	} {
		if is {
			d.saw[what]++
		}
	}
}

// compare reads back what the batch wrote, and takes the TTLs off: the run's
// clock is not Redis's, so nothing may expire.
func (d *differ) compare(written map[string]int64, sent time.Time) {
	ctx := context.Background()
	type read struct {
		value *redis.StringCmd
		ttl   *redis.DurationCmd
	}
	reads := map[string]read{}
	pipe := d.st.rdb.Pipeline()
	for key := range d.home {
		reads[key] = read{pipe.Get(ctx, key), pipe.PTTL(ctx, key)}
		pipe.Persist(ctx, key)
	}
	pipe.Exec(ctx) // a missing key is redis.Nil
	for key, r := range reads {
		want := ""
		if s, ok := d.model[key]; ok {
			want = stateText(s)
		}
		if s, ok := lua.DecodeState(want); want != "" && (!ok || s != d.model[key]) {
			d.t.Fatalf("%q decodes to %+v, want %+v", want, s, d.model[key])
		}
		if got := r.value.Val(); got != want {
			d.t.Fatalf("%s holds %q, want %q", key, got, want)
		}
		if ttl, ok := written[key]; ok {
			most, got := time.Duration(ttl)*time.Millisecond, r.ttl.Val()
			if least := most - time.Since(sent) - time.Millisecond; got > most || got < least {
				d.t.Fatalf("%s: TTL %v, want %v", key, got, most)
			}
		}
	}
}

// step is µs until the next batch, from none to days, sometimes back.
func (d *differ) step() int64 {
	scale := []int64{0, 1, 10, 1000, 50_000, 1_000_000, 60_000_000, 3_600_000_000, 3 * 86_400_000_000}
	n := d.rng.Int64N(scale[d.rng.IntN(len(scale))] + 1)
	switch d.rng.IntN(20) {
	case 0:
		return -d.rng.Int64N(algo.ClockSlack + 1)
	case 1:
		return -algo.ClockSlack - d.rng.Int64N(2)
	case 2:
		return -n
	}
	return n
}

func (d *differ) key() string { return fmt.Sprintf("k%d", d.rng.IntN(12)) }

func (d *differ) op() lua.Op {
	key := d.key()
	limit, ok := d.home[key]
	if !ok || d.rng.IntN(50) == 0 { // now and then a key's limit changes
		limit = diffLimits[d.rng.IntN(len(diffLimits))]
		d.home[key] = limit
	}
	if d.rng.IntN(20) == 0 { // and a process has not heard of it
		limit = diffLimits[d.rng.IntN(len(diffLimits))]
	}
	op := lua.Op{Key: key, Limit: limit}
	burst := limit.BurstSize()
	if d.rng.IntN(8) == 0 {
		op.Owed = d.cost(burst)
	}
	for range d.rng.IntN(4) {
		op.Asks = append(op.Asks, d.cost(burst))
	}
	op.Partial = d.rng.IntN(3) == 0
	if d.rng.IntN(2) == 0 {
		op.Demand, op.Div = d.rng.Int64N(1+d.rng.Int64N(1e12)), d.rng.Int64N(6)
	}
	op.View, op.Lost = d.view(key, algo.BucketOf(limit)), d.rng.IntN(2) == 0
	if held := d.held[key]; len(held) > 0 && d.rng.IntN(3) > 0 { // mostly the last
		h := held[len(held)-1-min(d.rng.IntN(20), len(held)-1)/18]
		op.Gen, op.Had = h.gen, h.units+d.rng.Int64N(8)/7
		op.Keep = d.rng.Int64N(op.Had + 1)
	}
	return op
}

// cost is mostly small, up to the burst, seldom above.
func (d *differ) cost(burst int64) int64 {
	switch d.rng.IntN(30) {
	case 0:
		return burst
	case 1:
		return burst + 1 + d.rng.Int64N(burst)
	case 2, 3, 4:
		return 1 + d.rng.Int64N(burst)
	}
	return 1 + d.rng.Int64N(min(burst, 3))
}

// view is none, the last one, an old one, or one of another life.
func (d *differ) view(key string, b algo.Bucket) lua.View {
	seen := d.seen[key]
	switch n := d.rng.IntN(100); {
	case n < 30 || len(seen) == 0:
		return lua.View{}
	case n < 95:
		return seen[len(seen)-1]
	case n < 99:
		return seen[d.rng.IntN(len(seen))]
	}
	return lua.View{
		Level: d.rng.Int64N(2*b.Cap+1) - b.Cap,
		At:    d.now - d.rng.Int64N(1e7) + 1e6, Born: 1 + d.rng.Int64N(start),
	}
}
