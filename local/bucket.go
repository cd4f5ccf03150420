package local

import (
	"math"
	"time"
)

// tokens is the state of a token bucket, and of a leaky bucket that polices: the units at a time. It is the arithmetic
// of a rate.Limiter of golang.org/x/time, to the bit (TestBucketIsTimeRate), without the parts that a shard has
// already: a lock, a time.Time and a copy of the limit.
type tokens struct {
	level float64 // negative in debt
	last  time.Duration
}

// at returns the level at now.
func (b *tokens) at(p *plan, now time.Duration) float64 { return p.refilled(b.level, now-b.last) }

func (b *tokens) set(level float64, now time.Duration) { b.level, b.last = level, now }

func (b *tokens) take(p *plan, now time.Duration, n int64) (time.Duration, bool) {
	level := b.at(p, now)
	if !p.admits(level, n) {
		return 0, false
	}
	b.set(level-float64(n), now)
	return 0, true
}

func (b *tokens) decide(p *plan, now time.Duration, n int64) (time.Duration, bool, look) {
	level := b.at(p, now)
	if !p.admits(level, n) {
		l := look{room: p.remaining(level), reset: b.wait(p, now, level, p.burst)}
		l.retry = b.wait(p, now, level, n)
		return 0, false, l
	}
	level -= float64(n)
	b.set(level, now)
	return 0, true, look{room: p.remaining(level), reset: b.wait(p, now, level, p.burst)}
}

func (b *tokens) look(p *plan, now time.Duration, n int64) look {
	level := b.at(p, now)
	l := look{room: p.remaining(level), reset: b.wait(p, now, level, p.burst)}
	if n > 0 {
		l.retry = b.wait(p, now, level, n)
	}
	return l
}

// wait returns the time from now until n ≤ burst units are admitted. level is the level at now.
//
// The product here and the sum in refilled round differently, so wait checks whether the time is right, and searches
// upwards. (A search downwards too would find the very first nanosecond. But it would turn 100 ms into 99.999999 ms
// wherever the last digit of a float64 is too small.) The check takes as long as the rest. It can be left out for a
// short limit, of at most 2⁴⁵ ns (9 hours) to full. The rounding to whole nanoseconds may lack half a nanosecond of
// refill, and admits forgives a whole one. The other roundings are less than a quarter of one: 2⁻⁴⁹ of a burst.
func (b *tokens) wait(p *plan, now time.Duration, level float64, n int64) time.Duration {
	missing := float64(n) - level
	if missing <= p.slack {
		return 0
	}
	d := time.Duration(missing*p.perUnit + 0.5)
	if p.short {
		return d
	}
	for step := time.Duration(1); d < maxWait && !p.admits(b.at(p, now+d), n); step *= 2 {
		d += step
	}
	return d
}

// book lets the level fall to one burst below 0.
func (b *tokens) book(p *plan, now time.Duration, n int64, most time.Duration) booking {
	level := b.at(p, now)
	delay := b.wait(p, now, level, n)
	if retry := b.wait(p, now, level, n-p.burst); retry > 0 || delay > most {
		return booking{delay: delay, retry: retry}
	}
	b.set(level-float64(n), now)
	return booking{delay: delay, ok: true}
}

// charge takes whole units only, and so may stop a part of a unit above the floor.
func (b *tokens) charge(p *plan, now time.Duration, n int64) {
	level := b.at(p, now)
	b.set(level-float64(min(n, int64(math.Floor(level+float64(p.burst))))), now)
}

func (b *tokens) refund(p *plan, now time.Duration, n int64) float64 {
	return b.give(p, now, min(float64(n), float64(p.burst)-b.at(p, now)))
}

// give adds units, at most two bursts.
func (b *tokens) give(p *plan, now time.Duration, units float64) float64 {
	if units <= 0 {
		return 0
	}
	b.set(b.at(p, now)+units, now)
	return units
}

func (b *tokens) mark(p *plan, now time.Duration) mark {
	return mark{at: now, level: b.at(p, now)}
}

// undo gives back n, less the units that would have overflowed since if they had not been taken. Without the call, the
// level would have been n higher, but at most the burst. The highest level since is unknown. It is bounded by peak: the
// level at the mark, plus all refill and all units given back since. So undo never gives back too much, and gives back
// all while the bucket cannot have been full. ahead limits it further, for later bookings.
func (b *tokens) undo(p *plan, now time.Duration, m mark, given float64, n int64) float64 {
	peak := m.level + given + p.perSecond*(now-m.at).Seconds()
	return b.give(p, now, min(float64(n), float64(p.burst)-peak))
}

// change keeps the level, also below 0. Units above the new burst are lost.
func (b *tokens) change(from, to *plan, now time.Duration) {
	b.set(min(b.at(from, now), float64(to.burst)), now)
}
