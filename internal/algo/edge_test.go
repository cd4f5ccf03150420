package algo_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// After every operation, even with invalid values, the state is within its range and the
// answer is usable.
func TestNothingOverflows(t *testing.T) {
	huge := rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 1 << 52, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}),
		rapid.Int64Range(0, math.MaxInt64),
	)
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		b := algo.BucketOf(limit)
		s := drawState(t, b, start)
		s.Since = rapid.SampledFrom([]int64{0, 1 << 53, 1<<53 - 1}).Draw(t, "since")
		now := rapid.OneOf(rapid.Just(int64(start)), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "now")
		op := algo.Op{
			Owed: huge.Draw(t, "owed"), Asks: []int64{huge.Draw(t, "ask"), huge.Draw(t, "ask")},
			Partial: rapid.Bool().Draw(t, "partial"), Demand: huge.Draw(t, "demand"), Div: huge.Draw(t, "div"),
			View: algo.View{
				Level: rapid.Int64Range(-b.Cap, b.Cap).Draw(t, "view"),
				At:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "seen at"), Born: rapid.Int64Range(0, 3).Draw(t, "view born"),
			},
		}
		next, ans, _ := b.Apply(s, op, now)
		if next.Level < -b.Cap || next.Level > b.Cap || next.Since < s.Since || next.Since > 1<<53 {
			t.Fatalf("state %+v out of range", next)
		}
		if ans.Granted < 0 || ans.Lease < 0 || ans.Granted+ans.Lease > limit.BurstSize() || ans.Life < 0 || ans.Life > algo.MaxLease {
			t.Fatalf("answer %+v", ans)
		}
		if ans.Retry < 0 || ans.Retry > algo.Never || b.TTL(next) < 2000 {
			t.Fatalf("retry %d, TTL %d", ans.Retry, b.TTL(next))
		}
	})
}

// Regression: n·Unit overflowed for asks far above the burst. A call that can never
// succeed got a retry of 0.
func TestWaitForMoreThanTheBurst(t *testing.T) {
	b := algo.BucketOf(hybridlimit.TokenBucket(1, 24*time.Hour, 100))
	for _, n := range []int64{101, 1 << 40, math.MaxInt64 / b.Unit, math.MaxInt64/b.Unit + 1, math.MaxInt64} {
		if got := b.Wait(0, n); got != algo.Never {
			t.Errorf("wait for %d units = %d µs, want Never", n, got)
		}
	}
	if got := time.Duration(algo.Never) * time.Microsecond; got < 285*365*24*time.Hour {
		t.Errorf("Never = %v, want at least 285 years", got)
	}
}

// Regression: Since + Owed overflowed, and a state with a negative count was written.
// Redis then treated the state as lost, and the bucket was full again.
func TestSinceSaturates(t *testing.T) {
	b := algo.BucketOf(hybridlimit.PerSecond(5))
	s := algo.State{Unit: b.Unit, Refill: b.Refill, Level: 0, Last: start, Born: start, Since: 1<<53 - 1}
	for _, op := range []algo.Op{owe(math.MaxInt64), owe(2)} {
		if s, _, _ = b.Apply(s, op, start); s.Since != 1<<53 {
			t.Errorf("Since = %d, want 2⁵³", s.Since)
		}
	}
}

// Regression: a negative demand made the lease NaN, which converts to the int64 -2⁶³.
func TestNegativeDemandLeasesNothing(t *testing.T) {
	b := algo.BucketOf(hybridlimit.PerSecond(5))
	s, ans, _ := b.Apply(algo.State{}, algo.Op{Owed: 2, Demand: -1, Div: 1}, start)
	if ans.Lease != 0 || s.Since != 2 {
		t.Errorf("%+v, %+v", s, ans)
	}
}

func TestFillAtTheEdges(t *testing.T) {
	day := algo.BucketOf(hybridlimit.TokenBucket(1, 24*time.Hour, edgeBurst(1, 24*time.Hour)))
	fast := algo.BucketOf(hybridlimit.PerSecond(10_000_000))
	for _, tc := range []struct {
		b                    algo.Bucket
		level, elapsed, want int64
	}{
		{day, -day.Cap, math.MaxInt64, day.Cap},
		{day, -day.Cap, math.MinInt64, -day.Cap},
		{day, -day.Cap, 2 * day.Cap, day.Cap},
		{day, -day.Cap, 2*day.Cap - 1, day.Cap - 1},
		{fast, 0, math.MaxInt64, fast.Cap},
		{fast, 0, 999_999, 9_999_990},
		{fast, fast.Cap + 5, 0, fast.Cap},
	} {
		if got := tc.b.Fill(tc.level, tc.elapsed); got != tc.want {
			t.Errorf("%+v: Fill(%d, %d) = %d, want %d", tc.b, tc.level, tc.elapsed, got, tc.want)
		}
	}
}

// Three regressions: part·Unit above 2⁵³ could round up, which created units. whole·Unit
// above 2⁶³ came back from float64 as -2⁶³. A debt larger than the new burst stayed
// below the floor.
func TestRescaleNeverCreatesUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := algo.BucketOf(drawLimit(t, "from")), algo.BucketOf(drawLimit(t, "to"))
		level := rapid.Int64Range(-from.Cap, from.Cap).Draw(t, "level")
		got := to.Rescale(level, from.Unit)
		if again := to.Rescale(got, to.Unit); again != got {
			t.Fatalf("rescaled to %d, rescaled again to %d", got, again)
		}
		before, full := units(from, level), units(to, to.Cap)
		switch after := units(to, got); {
		case before.Cmp(full) >= 0:
			if got != to.Cap {
				t.Fatalf("%v units became %v of %v", before, after, full)
			}
		case before.Cmp(new(big.Rat).Neg(full)) <= 0:
			if got != -to.Cap {
				t.Fatalf("%v units became %v, floor -%v", before, after, full)
			}
		case after.Cmp(before) > 0:
			t.Fatalf("%v units became %v", before, after)
		default:
			lost := new(big.Rat).Sub(before, after)
			if lost.Mul(lost, ratio(to.Unit, 1)).Cmp(ratio(3, 1)) >= 0 {
				t.Fatalf("%v units became %v: three sub-units lost or more", before, after)
			}
		}
	})
}

// The TTL of a state lasts at least until its bucket is full and the longest lease has
// ended. This holds for a frozen refill as well.
func TestTTLCoversTheTimeToFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := algo.BucketOf(drawLimit(t, "limit"))
		s := drawState(t, b, start)
		frozen := rapid.Int64Range(0, algo.ClockSlack).Draw(t, "frozen")
		need := b.WaitFull(s.Level) + frozen + algo.Generation<<s.Span
		if ttl := b.TTL(s); ttl*1000 < need || ttl*1000 > need+2_001_000 {
			t.Fatalf("TTL = %d ms, want %d µs and at most 2.001 s more", ttl, need)
		}
	})
}

// TestNothingOverflowsInAnyKind is TestNothingOverflows for the other algorithms.
func TestNothingOverflowsInAnyKind(t *testing.T) {
	huge := rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, -1, 1 << 52, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64}),
		rapid.Int64Range(0, 1<<20),
	)
	limits := []hybridlimit.Limit{
		hybridlimit.LeakyQueue(3, 7*time.Second, 2), hybridlimit.LeakyQueue(999_983, time.Hour, 1_250_999),
		hybridlimit.FixedWindow(5, time.Second), hybridlimit.FixedWindow(1<<51, 1<<50*time.Microsecond), hybridlimit.FixedWindow(1, time.Microsecond),
		hybridlimit.SlidingWindow(5, time.Second), hybridlimit.SlidingWindow(1<<51, 1<<50*time.Microsecond),
		hybridlimit.SlidingWindow(1_000_000_000, 24*time.Hour), hybridlimit.SlidingLog(1<<51, time.Hour), hybridlimit.SlidingLog(3, time.Second),
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		now, s, log := int64(start), algo.State{}, []algo.Entry(nil)
		for range rapid.IntRange(1, 6).Draw(t, "ops") {
			now += rapid.Int64Range(-2_000_000, 5_000_000).Draw(t, "step")
			op := algo.Op{
				Owed: huge.Draw(t, "owed"), Asks: []int64{huge.Draw(t, "ask"), huge.Draw(t, "ask")}, Partial: rapid.Bool().Draw(t, "partial"),
				Demand: huge.Draw(t, "demand"), Div: huge.Draw(t, "div"), Refund: huge.Draw(t, "refund"), Win: huge.Draw(t, "window"), RefundAt: huge.Draw(t, "refund at"), Since: huge.Draw(t, "since"),
				MaxDelay: huge.Draw(t, "max delay"), Reset: rapid.IntRange(0, 9).Draw(t, "reset") == 0, Lost: rapid.Bool().Draw(t, "lost"),
				View: algo.View{Level: huge.Draw(t, "level"), Prev: huge.Draw(t, "prev"), At: now - rapid.Int64Range(0, 1000).Draw(t, "ago"), Born: rapid.Int64Range(0, 3).Draw(t, "born")},
			}
			if limit.Algorithm == hybridlimit.AlgLeakyQueue {
				op.View.Level = max(min(op.View.Level, 1<<52), -1<<52) // the range of a bucket's level
			}
			var ans algo.Answer
			ttl, most := int64(1), int64(0)
			if limit.Algorithm == hybridlimit.AlgSlidingLog {
				log, ans, _ = algo.LogOf(limit).Apply(log, op, now)
				most = limit.Rate
			} else {
				l := algo.LimitOf(limit)
				s, ans, _ = l.Apply(s, op, now)
				ttl, most = l.TTL(s, now), l.Full()
				if s.Cur < 0 || s.Prev < 0 || s.Cur > min(2*limit.Rate, 1<<53) || s.Prev > min(2*limit.Rate, 1<<53) || s.Since < 0 || s.Since > 1<<53 || s.Level < -2*most {
					t.Fatalf("state %+v out of range", s)
				}
			}
			if ans.Granted < 0 || ans.Lease < 0 || ans.Granted+ans.Lease > limit.BurstSize()*2 || ans.Life < 0 || ans.Delay < 0 || ttl < 1 ||
				ans.Level > most || ans.Level < -3*most || ans.Retry < 0 || ans.Retry > algo.Never || ans.Refill < 0 || ans.Ends < 0 {
				t.Fatalf("%v: %+v gave %+v, state %+v, TTL %d", limit, op, ans, s, ttl)
			}
		}
	})
}
