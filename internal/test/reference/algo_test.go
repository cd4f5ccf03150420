package reference_test

import (
	"math/big"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// start is a Redis time in µs: 2025-11-13, with as many digits as a current time.
const start int64 = 1_763_000_000_000_000

var buckets = []hybridlimit.Limit{
	hybridlimit.PerSecond(10), hybridlimit.TokenBucket(1, 24*time.Hour, 1), hybridlimit.TokenBucket(1, 24*time.Hour, 300),
	hybridlimit.PerSecond(10_000_000), hybridlimit.TokenBucket(3, 7*time.Second, 2), hybridlimit.TokenBucket(999_983, time.Hour, 1_250_999),
	hybridlimit.LeakyBucket(100, time.Minute, 30), hybridlimit.TokenBucket(10_000_000, time.Second, 7),
}

func queues() (all []hybridlimit.Limit) {
	for _, l := range buckets {
		all = append(all, hybridlimit.LeakyQueue(l.Rate, l.Period, l.Burst))
	}
	return all
}

func windows(of func(int64, time.Duration) hybridlimit.Limit) []hybridlimit.Limit {
	return []hybridlimit.Limit{
		of(10, time.Second), of(1, 24*time.Hour), of(7, 24*time.Hour), of(10_000_000, time.Second), of(3, 7*time.Second),
		of(1000, time.Minute), of(5, time.Microsecond), of(40, 90*24*time.Hour), of(600_000, time.Hour),
	}
}

// twin is internal/algo under one limit.
type twin struct {
	limit hybridlimit.Limit
	state algo.State
	log   []algo.Entry
}

func (t twin) apply(op algo.Op, now int64) (twin, algo.Answer, bool) {
	var ans algo.Answer
	var dirty bool
	if t.limit.Algorithm == hybridlimit.AlgSlidingLog {
		t.log, ans, dirty = algo.LogOf(t.limit).Apply(t.log, op, now)
	} else {
		t.state, ans, dirty = algo.LimitOf(t.limit).Apply(t.state, op, now)
	}
	return t, ans, dirty
}

// free converts a level to units.
func (t twin) free(level int64) *big.Rat {
	if t.limit.Algorithm == hybridlimit.AlgSlidingLog {
		return big.NewRat(level, 1)
	}
	return big.NewRat(level, algo.LimitOf(t.limit).Unit())
}

// TestTwinDecidesAsTheReference compares each decision, level and wait of the twin with the reference. Package lua compares
// Redis with the twin.
func TestTwinDecidesAsTheReference(t *testing.T) {
	for name, limits := range map[string][]hybridlimit.Limit{
		"bucket": buckets, "queue": queues(), "fixed": windows(hybridlimit.FixedWindow),
		"sliding": windows(hybridlimit.SlidingWindow), "log": windows(hybridlimit.SlidingLog),
	} {
		t.Run(name, func(t *testing.T) {
			rng := testenv.Rand(t)
			saw := map[string]int{}
			for done := 0; done < testenv.Runs(4_000, 200_000) && !t.Failed(); done += 100 {
				r := &run{t: t, rng: rng, saw: saw, limit: limits[rng.IntN(len(limits))], now: start + rng.Int64N(1e12)}
				r.twin, r.model = twin{limit: r.limit}, New(r.limit)
				for range 100 {
					r.step()
				}
			}
			t.Logf("%v", saw)
			for _, what := range []string{"granted", "refused", "debt", "refunded", "reset", "back"} {
				if saw[what] == 0 {
					t.Errorf("no op was %q", what)
				}
			}
		})
	}
}

// run is one key on both sides.
type run struct {
	t     *testing.T
	rng   *rand.Rand
	limit hybridlimit.Limit
	twin  twin
	model Model
	now   int64
	saw   map[string]int
}

// cost draws a cost: mostly small, up to the burst, rarely above.
func (r *run) cost() int64 {
	burst := r.limit.BurstSize()
	switch r.rng.IntN(10) {
	case 0:
		return burst
	case 1:
		return burst + 1 + r.rng.Int64N(burst)
	case 2, 3, 4:
		return 1 + r.rng.Int64N(burst)
	}
	return 1 + r.rng.Int64N(min(burst, 3))
}

// pass moves the clock: often by the time of a unit or a window, otherwise by 1 µs up to days, sometimes back.
func (r *run) pass() {
	period := r.limit.Period.Microseconds()
	scale := []int64{1, 10, 1000, 1_000_000, 86_400_000_000, period, period/r.limit.Rate + 1, r.limit.TimeToFull().Microseconds() + 1}
	n := r.rng.Int64N(scale[r.rng.IntN(len(scale))] + 1)
	switch r.rng.IntN(30) {
	case 0:
		n = -r.rng.Int64N(algo.ClockSlack + 2)
	case 1:
		n = -n
	}
	if n < 0 {
		r.saw["back"]++
	}
	r.now = max(r.now+n, start/2)
}

func (r *run) op() algo.Op {
	var op algo.Op
	if r.rng.IntN(5) > 0 {
		op.Asks = append(op.Asks, r.cost())
	}
	op.Partial = r.rng.IntN(6) == 0
	if r.rng.IntN(8) == 0 {
		op.Owed = r.cost()
	}
	if r.rng.IntN(10) == 0 {
		op.Refund = r.cost()
	}
	window := func() int64 { return r.now/r.limit.Period.Microseconds() + 1 - r.rng.Int64N(4) }
	if r.rng.IntN(3) == 0 {
		op.Win = window()
	}
	switch kind := algo.KindOf(r.limit.Algorithm); {
	case r.rng.IntN(3) > 0:
	case kind == algo.KindFixed || kind == algo.KindSliding:
		op.RefundAt = window()
	case kind == algo.KindLog && len(r.twin.log) > 0: // the time of an entry, or a time without an entry
		op.RefundAt = r.twin.log[r.rng.IntN(len(r.twin.log))].At + r.rng.Int64N(2)
	}
	op.Reset = r.rng.IntN(40) == 0
	queue := r.limit.Algorithm == hybridlimit.AlgLeakyQueue
	if a := r.limit.Algorithm; !op.Partial && (a == hybridlimit.AlgTokenBucket || queue) && r.rng.IntN(4) == 0 {
		op.MaxDelay = 1 + r.rng.Int64N(2*r.limit.TimeToFull().Microseconds()+1)
	}
	return op
}

// step runs one op on both sides.
func (r *run) step() {
	r.pass()
	now, op, m := r.now, r.op(), r.model.Load(r.now)
	before := r.twin
	next, ans, dirty := before.apply(op, now)
	fail := func(format string, args ...any) {
		r.t.Helper()
		r.t.Logf("%v at %d\nstate %+v\nop %+v\nanswer %+v", r.limit, now, before, op, ans)
		r.t.Fatalf(format, args...)
	}
	if op.Reset {
		m.Reset(now)
		r.saw["reset"]++
	}
	if op.Owed > 0 {
		if counted := m.Owe(now, op.Owed, op.Win); counted == ans.Dropped {
			fail("counted is %t", counted)
		}
	}
	if op.Refund > 0 {
		m.Refund(now, op.Refund, op.RefundAt)
		r.saw["refunded"]++
	}
	wait := int64(1)
	for _, n := range op.Asks {
		want, patience := n, op.MaxDelay
		if op.Partial {
			want = max(min(n, new(big.Int).Div(m.Free(now).Num(), m.Free(now).Denom()).Int64()), 0)
		} else if !m.Fits(now, n, patience) {
			want = 0
		}
		if ans.Granted != want {
			fail("want %d granted", want)
		}
		if want > 0 {
			if delay := m.Delay(now, want); ans.Delay != delay {
				fail("want a delay of %d", delay)
			}
			m.Take(now, want)
			r.saw["granted"]++
			continue
		}
		if wait = n; op.Partial {
			wait = 1
		}
		r.saw["refused"]++
	}
	if m.Free(now).Cmp(next.free(ans.Level)) != 0 {
		fail("want %v units left", m.Free(now))
	}
	if ans.Level < 0 {
		r.saw["debt"]++
	}
	patience := op.MaxDelay
	if ans.Granted > 0 || len(op.Asks) == 0 {
		patience = 0
	}
	if want := r.wait(m, now, wait, patience); ans.Retry != want {
		fail("want a retry of %d", want)
	}
	if dirty {
		r.twin, r.model = next, m
	}
}

// wait returns the µs from now until n units fit, if no other call comes.
func (r *run) wait(m Model, now, n, patience int64) int64 {
	if n > r.limit.BurstSize() {
		return algo.Never
	}
	most := 4*r.limit.Period.Microseconds() + 2*r.limit.TimeToFull().Microseconds() + 2*algo.ClockSlack
	return int64(sort.Search(int(most), func(i int) bool { return m.Fits(now+int64(i), n, patience) }))
}

// A sliding window with ticks longer than one µs counts at most one tick of the last window too much, and never too little.
func TestCoarseTicksAreOnTheSafeSide(t *testing.T) {
	rng := testenv.Rand(t)
	for _, l := range []hybridlimit.Limit{
		hybridlimit.SlidingWindow(1_000_000, 24*time.Hour), hybridlimit.SlidingWindow(1_000_000_000, 24*time.Hour),
		hybridlimit.SlidingWindow(999_983, 365*24*time.Hour),
	} {
		w := algo.WindowOf(l)
		if w.Tick < 2 {
			t.Fatalf("%v has ticks of %d µs", l, w.Tick)
		}
		for range testenv.Runs(50, 1000) {
			now, m, s := start+rng.Int64N(1e12), New(l), algo.State{}
			for range 50 {
				now += rng.Int64N(w.Period / 10)
				m = m.Load(now)
				var ans algo.Answer
				s, ans, _ = w.Apply(s, algo.Op{Asks: []int64{1 + rng.Int64N(l.Rate/3)}}, now)
				if ans.Granted > 0 {
					if !m.Fits(now, ans.Granted, 0) {
						t.Fatalf("%v granted %d", l, ans.Granted)
					}
					m.Take(now, ans.Granted)
				}
				off := new(big.Rat).Sub(m.Free(now), big.NewRat(ans.Level, w.Unit))
				if off.Sign() < 0 || off.Cmp(big.NewRat(2*s.Prev, w.Unit)) > 0 {
					t.Fatalf("%v: %v units left are %d sub-units", l, m.Free(now), ans.Level)
				}
				if ans.Granted == 0 {
					s2, late, _ := w.Apply(s, algo.Op{Asks: []int64{1}}, now+ans.Retry)
					if ans.Retry > 0 && late.Granted == 0 && late.Retry == 0 {
						t.Fatalf("%+v", s2)
					}
				}
			}
		}
	}
}
