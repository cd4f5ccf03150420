package local

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// bucket is the state of a token bucket, and of a leaky bucket that polices: the units at a time. It is the arithmetic
// of a rate.Limiter of golang.org/x/time, to the bit (TestBucketIsTimeRate), without the parts that a shard has
// already: a lock, a time.Time and a copy of the limit.
type bucket struct {
	level float64 // negative in debt
	last  time.Duration
}

// at returns the level at now, at most the burst. It computes as rate.Limiter does, without a fused sum.
func (b *bucket) at(p *plan, now time.Duration) float64 {
	elapsed := now - b.last
	seconds := float64(elapsed) / float64(time.Second)
	if elapsed >= time.Second {
		seconds = elapsed.Seconds()
	}
	return min(b.level+float64(seconds*p.perSecond), float64(p.burst))
}

// advance does nothing: the level is rounded only when units are taken, as by rate.Limiter.
func (b *bucket) advance(*plan, time.Duration) {}

func (b *bucket) set(level float64, now time.Duration) { b.level, b.last = level, now }

// decide is take of what is there and then look, in one step: for n if take failed, else for 0.
func (b *bucket) decide(p *plan, now time.Duration, n int64) (delay time.Duration, ok bool, seen look) {
	level := b.at(p, now)
	if ok = p.admits(level, n); ok {
		level -= float64(n)
		b.set(level, now)
		n = 0
	}
	return 0, ok, b.seen(p, now, level, n)
}

func (b *bucket) look(p *plan, now time.Duration, n int64) look {
	return b.seen(p, now, b.at(p, now), n)
}

// seen is look at a level, which is that at now.
func (b *bucket) seen(p *plan, now time.Duration, level float64, n int64) look {
	l := look{room: p.remaining(level), reset: b.wait(p, now, level, p.burst)}
	if n > 0 {
		l.retry = b.wait(p, now, level, n)
	}
	return l
}

// wait returns the time from now until n ≤ burst units are admitted. level is the level at now.
//
// The product here and the sum in at round differently, so wait checks whether the time is right, and searches
// upwards. (A search downwards too would find the very first nanosecond. But it would turn 100 ms into 99.999999 ms
// wherever the last digit of a float64 is too small.) The check takes as long as the rest. It can be left out for a
// short limit, of at most 2⁴⁵ ns (9 hours) to full. The rounding to whole nanoseconds may lack half a nanosecond of
// refill, and admits forgives a whole one. The other roundings are less than a quarter of one: 2⁻⁴⁹ of a burst.
func (b *bucket) wait(p *plan, now time.Duration, level float64, n int64) time.Duration {
	missing := float64(n) - level
	if missing <= p.slack {
		return 0
	}
	d := time.Duration(missing*p.perUnit + 0.5)
	if p.short {
		return d
	}
	// The bound is 146 years, and Validate bounds the time to full to 142. (From debt it is up to twice as long. Then
	// the rounded product may stay.)
	for step := time.Duration(1); d < hybridlimit.Never/2 && !p.admits(b.at(p, now+d), n); step *= 2 {
		d += step
	}
	return d
}

// take lets the level fall to one burst below 0.
func (b *bucket) take(p *plan, now time.Duration, n int64, most time.Duration) booking {
	level := b.at(p, now)
	t := booking{delay: b.wait(p, now, level, n), retry: b.wait(p, now, level, n-p.burst)}
	if t.ok = t.retry == 0 && t.delay <= most; t.ok {
		b.set(level-float64(n), now)
	}
	return t
}

// charge takes whole units only, and so may stop a part of a unit above the floor.
func (b *bucket) charge(p *plan, now time.Duration, n int64) {
	level := b.at(p, now)
	b.set(level-float64(min(n, int64(math.Floor(level+float64(p.burst))))), now)
}

func (b *bucket) refund(p *plan, now time.Duration, n int64) float64 {
	return b.give(p, now, min(float64(n), float64(p.burst)-b.at(p, now)))
}

// give adds units, at most two bursts.
func (b *bucket) give(p *plan, now time.Duration, units float64) float64 {
	if units <= 0 {
		return 0
	}
	b.set(b.at(p, now)+units, now)
	return units
}

func (b *bucket) mark(p *plan, now time.Duration) mark { return mark{at: now, level: b.at(p, now)} }

// undo gives back n, less the units that would have overflowed since if they had not been taken. Without the call, the
// level would have been n higher, but at most the burst. The highest level since is unknown. It is bounded by peak: the
// level at the mark, plus all refill and all units given back since. So undo never gives back too much, and gives back
// all while the bucket cannot have been full. ahead limits it further, for later bookings.
func (b *bucket) undo(p *plan, now time.Duration, m mark, given float64, n int64) float64 {
	peak := m.level + given + p.perSecond*(now-m.at).Seconds()
	return b.give(p, now, min(float64(n), float64(p.burst)-peak))
}

// change keeps the level, also below 0. Units above the new burst are lost.
func (b *bucket) change(from, to *plan, now time.Duration) {
	b.set(min(b.at(from, now), float64(to.burst)), now)
}

// admits reports whether n ≤ burst units are admitted at a level. It forgives less than the refill of one nanosecond,
// as rate.Limiter does, which cuts the wait to whole nanoseconds. slack is the largest number of missing units with a
// wait below one.
func (p *plan) admits(level float64, n int64) bool { return float64(n)-level <= p.slack }

// remaining returns the largest n that would be admitted. It can be ⌊level⌋ + 1, because of that nanosecond:
// 0.9999999999 tokens admit a call of cost 1, which a caller that reads 0 would not make.
func (p *plan) remaining(level float64) int64 {
	n := math.Floor(level+p.slack) + 1
	for n-level > p.slack { // at most three rounds
		n--
	}
	return max(0, min(int64(n), p.burst))
}

// ahead records the bookings of a bucket, from the first reservation of a key on.
//
// A caller that books units before they have refilled gets a time. A cancelled booking without later ones gives back
// all its units. Later bookings keep their times. So a cancelled booking before them gives back only the units that
// they have not booked ahead, as a reservation of golang.org/x/time/rate does. If all came back, a new call could take
// a whole burst at the time of the later bookings. The rest is a gap. It comes back when all bookings behind it are
// cancelled.
type ahead struct {
	given float64 // units given back so far: see bucket.undo
	tail  int64   // units booked ahead so far, less units cancelled at the end
	base  int64   // the smallest tail: another call has taken units at this position
	gaps  gaps    // from base on
}

// seal separates later bookings from earlier ones.
func (a *ahead) seal() { a.base, a.gaps = a.tail, nil }

// join adds n units that have not refilled yet. first: all units before them had.
func (a *ahead) join(n int64, first bool) {
	if first {
		a.seal()
	}
	a.tail += n
}

// leave returns the largest number of units that come back for a receipt, including the gaps that are now at the end.
// debt: the level is below zero.
func (a *ahead) leave(r receipt, debt bool) int64 {
	if !debt {
		a.seal()
	}
	from := r.tail - r.n
	if !r.ahead || r.tail != a.tail || from < a.base {
		return max(0, r.n-(a.tail-r.tail))
	}
	from, kept := a.gaps.close(from)
	a.tail = from
	return r.n + kept
}

// gap records that back units came back for a receipt, unless it was the last one.
func (a *ahead) gap(r receipt, back float64) {
	if from := r.tail - r.n; r.ahead && r.tail <= a.tail && from >= a.base {
		a.gaps.add(gap{from, r.tail, max(0, r.n-int64(math.Ceil(back-1e-9)))})
	}
}

// receipt has the data that Cancel needs.
type receipt struct {
	mark
	n     int64
	book  *ahead  // of a bucket
	given float64 // of book, at the time
	tail  int64   // of book, with these units
	ahead bool    // the units had not refilled yet
}
