package local

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// tokens is the state of a token bucket, and of a leaky bucket that polices,
// which is the same seen from above: a [rate.Limiter], whose arithmetic it is.
//
// Three things are asked of it that its documentation does not spell out, and
// TestWhatIsAskedOfRateLimiter holds on to: a level below 0 comes back as any
// other, a cost below 0 gives, and an earlier time makes the refill since then
// come a second time.
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

// book lets the level fall to a whole burst below 0.
func (b *tokens) book(p *plan, now time.Duration, n int64, most time.Duration) booking {
	lim, at := b.limiter(), p.start.Add(now)
	level := lim.TokensAt(at)
	delay := p.wait(lim, at, level, n)
	if retry := p.wait(lim, at, level, n-p.burst); retry > 0 || delay > most {
		return booking{delay: delay, retry: retry}
	}
	return booking{delay: delay, ok: lim.ReserveN(at, int(n)).OK()}
}

// charge leaves the part of a unit that does not fit above the floor.
func (b *tokens) charge(p *plan, now time.Duration, n int64) {
	lim, at := b.limiter(), p.start.Add(now)
	n = min(n, int64(math.Floor(lim.TokensAt(at)+float64(p.burst))))
	for n > 0 { // twice at most: no call of rate.Limiter takes more than a burst
		some := min(n, p.burst)
		lim.ReserveN(at, int(some))
		n -= some
	}
}

func (b *tokens) refund(p *plan, now time.Duration, n int64) float64 {
	lim, at := b.limiter(), p.start.Add(now)
	return b.give(p, now, min(float64(n), float64(p.burst)-lim.TokensAt(at)))
}

// give adds units, at most two bursts, to within what comes back in 1 ns.
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
	// The part of a unit: what came back in the last moments comes again.
	again := time.Duration(p.nanos(units - whole))
	lim.ReserveN(at, 0)
	lim.ReserveN(at.Add(-again), 0)
	return units
}

func (b *tokens) mark(p *plan, now time.Duration) mark {
	return mark{at: now, level: b.limiter().TokensAt(p.start.Add(now))}
}

// undo gives back n less what a bucket from which nothing had been taken would
// have had to let run over since. It would have been n units higher, and cannot
// have been above the burst; how high this one was at most, is not known, but
// it was no higher than with all of the refill and all gifts. So what is given
// back never is too much, and all of it while the bucket cannot have been full.
// Whom it would make room beside is not its concern: see ahead.
func (b *tokens) undo(p *plan, now time.Duration, m mark, given float64, n int64) float64 {
	peak := m.level + given + float64(p.perSecond)*(now-m.at).Seconds()
	return b.give(p, now, min(float64(n), float64(p.burst)-peak))
}

// change keeps the level: what is left, or owed, stays so, and what is above the
// new burst is lost.
func (b *tokens) change(from, to *plan, now time.Duration) {
	lim, at := b.limiter(), from.start.Add(now)
	lim.SetLimitAt(at, to.perSecond)
	lim.SetBurstAt(at, int(to.burst))
}
