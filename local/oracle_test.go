package local

import (
	"math/big"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// ideal is the bucket of a limit without any rounding. It counts in units ×
// Period in ns, so that Rate come back each nanosecond.
type ideal struct {
	limit      hybridlimit.Limit
	size       *big.Int
	level      *big.Int // negative in debt
	last       time.Time
	admissions int64 // since the last time at which a rate.Limiter was certainly full
}

func newIdeal(limit hybridlimit.Limit, now time.Time) *ideal {
	b := &ideal{limit: limit, last: now}
	b.size = b.units(limit.BurstSize())
	b.level = new(big.Int).Set(b.size)
	return b
}

func (b *ideal) units(n int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(b.limit.Period)))
}

func (b *ideal) refill(d time.Duration) *big.Int {
	return new(big.Int).Mul(big.NewInt(b.limit.Rate), big.NewInt(int64(d)))
}

func (b *ideal) advance(now time.Time) {
	d := now.Sub(b.last)
	if d > b.limit.TimeToFull()+b.blur() {
		b.admissions = 0
	}
	b.level.Add(b.level, b.refill(d))
	if b.level.Cmp(b.size) > 0 {
		b.level.Set(b.size)
	}
	b.last = now
}

// take takes n units unconditionally: the oracle checks decisions, it makes none.
func (b *ideal) take(n int64) {
	b.level.Sub(b.level, b.units(n))
	b.admissions++
}

// blur is ε of the package comment, rounded up.
func (b *ideal) blur() time.Duration {
	const rounding = 1.0 / (1 << 49)
	return 3 + time.Duration(float64(b.admissions+2)*rounding*float64(b.limit.TimeToFull()))
}

// holds reports whether the bucket holds n units d after now, or before now if d is
// negative.
func (b *ideal) holds(n int64, d time.Duration) bool {
	level := new(big.Int).Add(b.level, b.refill(d))
	return level.Cmp(b.units(n)) >= 0
}

// anyLimit draws a limit that New accepts: 1 per 10 000 days to 10 million a second, with
// a burst of up to 10¹² that fits an int.
func anyLimit(t *rapid.T) hybridlimit.Limit {
	periods := []time.Duration{
		time.Microsecond, time.Millisecond, 7 * time.Millisecond, time.Second,
		time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 10_000 * 24 * time.Hour,
	}
	return rapid.Custom(func(t *rapid.T) hybridlimit.Limit {
		per := rapid.SampledFrom(periods).Draw(t, "per")
		// At most 10⁷ a second.
		most := min(int64(per/100)+1, 10_000_000)
		rate := logInt(t, most, "rate")
		return hybridlimit.TokenBucket(rate, per, logInt(t, 1e12, "burst"))
	}).Filter(func(l hybridlimit.Limit) bool { return check(l, Config{}) == nil }).Draw(t, "limit")
}

// logInt draws an integer from 1 to most. All magnitudes are equally likely.
func logInt(t *rapid.T, most int64, name string) int64 {
	top := most
	for range rapid.IntRange(0, 40).Draw(t, name+" halvings") {
		top = max(top/2, 1)
	}
	return rapid.Int64Range(1, top).Draw(t, name)
}

// anyPause draws a pause that matters to the limit: none, up to the time of three units,
// or up to slightly more than the time to full.
func anyPause(t *rapid.T, l hybridlimit.Limit) time.Duration {
	full := l.TimeToFull()
	unit := max(l.Period/time.Duration(l.Rate), 1)
	return rapid.OneOf(
		rapid.Just(time.Duration(0)),
		rapid.Map(rapid.Int64Range(0, 3000), func(x int64) time.Duration { return time.Duration(float64(unit) * float64(x) / 1000) }),
		rapid.Map(rapid.Int64Range(0, 1100), func(x int64) time.Duration { return full/1000*time.Duration(x) + 1 }),
	).Draw(t, "pause")
}
