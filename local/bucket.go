package local

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// tokens is the state of a token bucket, and of a leaky bucket that polices, which
// has the same arithmetic: that of a [rate.Limiter].
//
// It relies on three properties of rate.Limiter that are not documented and that
// TestWhatIsAskedOfRateLimiter checks: a level below 0 refills as any other, a
// negative cost gives tokens, and an earlier time makes the refill since then
// happen again.
type tokens rate.Limiter

func newTokens(p *plan) *tokens { return (*tokens)(p.newLimiter()) }

func (b *tokens) limiter() *rate.Limiter { return (*rate.Limiter)(b) }

func (b *tokens) take(p *plan, now time.Duration, n int64) (time.Duration, bool) {
	return 0, b.limiter().AllowN(p.start.Add(now), int(n))
}

func (b *tokens) decide(p *plan, now time.Duration, n int64) (time.Duration, bool, look) {
	lim, at := b.limiter(), p.start.Add(now)
	if !lim.AllowN(at, int(n)) {
		return 0, false, b.look(p, now, n)
	}
	level := lim.TokensAt(at)
	return 0, true, look{room: p.remaining(level), reset: p.settled(level, p.burst)}
}

func (b *tokens) look(p *plan, now time.Duration, n int64) look {
	lim, at := b.limiter(), p.start.Add(now)
	level := lim.TokensAt(at)
	l := look{room: p.remaining(level), reset: p.wait(lim, at, level, p.burst)}
	if n > 0 {
		l.retry = p.wait(lim, at, level, n)
	}
	return l
}

// book lets the level fall to one burst below 0.
func (b *tokens) book(p *plan, now time.Duration, n int64, most time.Duration) booking {
	lim, at := b.limiter(), p.start.Add(now)
	level := lim.TokensAt(at)
	delay := p.wait(lim, at, level, n)
	if retry := p.wait(lim, at, level, n-p.burst); retry > 0 || delay > most {
		return booking{delay: delay, retry: retry}
	}
	return booking{delay: delay, ok: lim.ReserveN(at, int(n)).OK()}
}

// charge takes whole units only, and so may stop a part of a unit above the floor.
func (b *tokens) charge(p *plan, now time.Duration, n int64) {
	lim, at := b.limiter(), p.start.Add(now)
	n = min(n, int64(math.Floor(lim.TokensAt(at)+float64(p.burst))))
	for n > 0 { // at most twice: a call of rate.Limiter takes at most a burst
		some := min(n, p.burst)
		lim.ReserveN(at, int(some))
		n -= some
	}
}

func (b *tokens) refund(p *plan, now time.Duration, n int64) float64 {
	lim, at := b.limiter(), p.start.Add(now)
	return b.give(p, now, min(float64(n), float64(p.burst)-lim.TokensAt(at)))
}

// give adds units, at most two bursts. Its error is at most the refill of 1 ns.
func (b *tokens) give(p *plan, now time.Duration, units float64) float64 {
	if units <= 0 {
		return 0
	}
	lim, at := b.limiter(), p.start.Add(now)
	whole := math.Floor(units)
	for rest := int64(whole); rest > 0; {
		some := min(rest, p.burst)
		lim.ReserveN(at, -int(some))
		rest -= some
	}
	// The part of a unit: the last refill happens again.
	again := time.Duration(p.nanos(units - whole))
	lim.ReserveN(at, 0)
	lim.ReserveN(at.Add(-again), 0)
	return units
}

func (b *tokens) mark(p *plan, now time.Duration) mark {
	return mark{at: now, level: b.limiter().TokensAt(p.start.Add(now))}
}

// undo gives back n less the units that would have overflowed since if they had not
// been taken. Without the taking, the level would have been n higher, but at most
// the burst. The highest level since is unknown; it is bounded by peak, the level
// with all refill and all units given back. So undo never gives back too much, and
// gives back all while the bucket cannot have been full. ahead limits it further,
// for later bookings.
func (b *tokens) undo(p *plan, now time.Duration, m mark, given float64, n int64) float64 {
	peak := m.level + given + float64(p.perSecond)*(now-m.at).Seconds()
	return b.give(p, now, min(float64(n), float64(p.burst)-peak))
}

// change keeps the level, also below 0. Units above the new burst are lost.
func (b *tokens) change(from, to *plan, now time.Duration) {
	lim, at := b.limiter(), from.start.Add(now)
	lim.SetLimitAt(at, to.perSecond)
	lim.SetBurstAt(at, int(to.burst))
}
