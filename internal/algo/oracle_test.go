package algo_test

import (
	"math/big"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

// start is a time of Redis in µs: 2025-11-13. A float loses digits of it as it does of a
// real timestamp.
const start = 1_763_000_000_000_000

// oracle is a token bucket in exact arithmetic: rational units, with a refill of
// rate·elapsed/period.
type oracle struct {
	limit hybridlimit.Limit
	units *big.Rat // negative is debt
	last  int64
}

func newOracle(l hybridlimit.Limit, now int64) *oracle {
	return &oracle{limit: l, units: ratio(l.BurstSize(), 1), last: now}
}

func ratio(a, b int64) *big.Rat { return big.NewRat(a, b) }

// perMicro returns the refill in units per µs.
func (o *oracle) perMicro() *big.Rat {
	return ratio(o.limit.Rate, int64(o.limit.Period/time.Microsecond))
}

func (o *oracle) refill(now int64) {
	add := new(big.Rat).Mul(o.perMicro(), ratio(now-o.last, 1))
	o.units.Add(o.units, add)
	if full := ratio(o.limit.BurstSize(), 1); o.units.Cmp(full) > 0 {
		o.units = full
	}
	o.last = now
}

func (o *oracle) debit(n int64) {
	o.units.Sub(o.units, ratio(n, 1))
	if floor := ratio(-o.limit.BurstSize(), 1); o.units.Cmp(floor) < 0 {
		o.units = floor
	}
}

func (o *oracle) ask(n int64) bool {
	if o.units.Cmp(ratio(n, 1)) < 0 {
		return false
	}
	o.units.Sub(o.units, ratio(n, 1))
	return true
}

// wait returns the µs until n units are available, rounded up.
func (o *oracle) wait(n int64) int64 {
	missing := new(big.Rat).Sub(ratio(n, 1), o.units)
	if missing.Sign() <= 0 {
		return 0
	}
	missing.Quo(missing, o.perMicro())
	q, r := new(big.Int).QuoRem(missing.Num(), missing.Denom(), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// units converts a level of b to units.
func units(b algo.Bucket, level int64) *big.Rat { return ratio(level, b.Unit) }

// drawLimit draws a valid limit between one a day and ten million a second, with a burst
// up to the largest that Validate accepts.
func drawLimit(t *rapid.T, label string) hybridlimit.Limit {
	period := rapid.SampledFrom([]time.Duration{
		time.Microsecond, time.Millisecond, 7 * time.Millisecond, 100 * time.Millisecond, time.Second,
		time.Minute, time.Hour, 24 * time.Hour, 999_983 * time.Microsecond,
	}).Draw(t, label+" period")
	most := max(int64(period/time.Microsecond)*10, 1) // ten million a second
	rate := rapid.OneOf(
		rapid.SampledFrom([]int64{1, min(3, most), min(1000, most), most}),
		rapid.Int64Range(1, most),
	).Draw(t, label+" rate")
	edge := edgeBurst(rate, period)
	burst := rapid.OneOf(
		rapid.Int64Range(1, min(20, edge)),
		rapid.Int64Range(1, edge),
		rapid.Just(edge),
	).Draw(t, label+" burst")
	l := hybridlimit.TokenBucket(rate, period, burst)
	if err := l.Validate(); err != nil {
		t.Fatalf("drew an invalid limit: %v", err)
	}
	return l
}

// edgeBurst returns the largest burst that Validate accepts.
func edgeBurst(rate int64, period time.Duration) int64 {
	b := algo.BucketOf(hybridlimit.TokenBucket(rate, period, 1))
	return (1<<53 - b.Refill) / 2 / b.Unit
}

// drawState draws a state that operations under b can lead to.
func drawState(t *rapid.T, b algo.Bucket, now int64) algo.State {
	last := now - rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 5_000_000), rapid.Int64Range(0, 1<<47)).Draw(t, "age")
	return algo.State{
		Unit: b.Unit, Refill: b.Refill, Level: rapid.Int64Range(-b.Cap, b.Cap).Draw(t, "level"),
		Last: last, Born: min(last, now), Since: rapid.Int64Range(0, 1<<30).Draw(t, "since"),
		Span: rapid.Int64Range(0, 3).Draw(t, "span"),
	}
}
