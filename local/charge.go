package local

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// AllowAtMost takes as many of n units of key as there are, 0 to n. Allowed says
// whether that was any, Granted how many. n may be above the burst. It fails as
// AllowN does.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.atMostAt(time.Now(), key, n, l.request(ctx))
}

func (l *Limiter) atMostAt(now time.Time, key string, n int64, request string) (hybridlimit.Result, error) {
	s, own, err := l.lock(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	defer s.mu.Unlock()
	at, behind := s.tick(now.Sub(l.start))
	p := s.limitOf(l, key, nil, own)
	if static(p.limit.Algorithm) {
		return l.static(p, n), nil
	}
	e := s.find(key, p, own)
	e.use(p, at)
	seen := e.look(at, 1)
	if n = min(n, seen.room); n == 0 {
		return l.result(seen, e.plan, behind), nil
	}
	e.by(request)
	delay, ok := e.state.take(e.plan, at, n)
	res := l.result(e.look(at, 0), e.plan, behind)
	if ok { // it is: look and take agree
		res.Allowed, res.Granted, res.Delay = true, n, after(delay, behind)
	}
	return res, nil
}

// Charge takes n units of key whether they are there or not: the actual cost of
// something that was admitted for an estimate, say. What is not there is owed,
// and comes out of what comes back: later calls are denied until it has. The
// debt ends at one burst; what would go beyond is forgiven. A fixed window's debt
// is the beginning of the next window. It fails as AllowN does, but n may be
// above the burst. Result.Granted is n, Remaining what is left.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.chargeAt(time.Now(), key, n, l.request(ctx))
}

func (l *Limiter) chargeAt(now time.Time, key string, n int64, request string) (hybridlimit.Result, error) {
	s, own, err := l.lock(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	defer s.mu.Unlock()
	p := s.limitOf(l, key, nil, own)
	if static(p.limit.Algorithm) {
		res := l.static(p, n)
		res.Allowed, res.Granted, res.RetryAfter = true, n, 0
		return res, nil
	}
	at, behind := s.tick(now.Sub(l.start))
	e := s.find(key, p, own)
	e.use(p, at)
	e.by(request)
	e.charge(at, n)
	res := l.result(e.look(at, 0), p, behind)
	res.Allowed, res.Granted = true, n
	return res, nil
}

// Refund gives n units of key back: of what was admitted and did not happen, say.
// More than what is missing is not given. A refund names no window: it takes
// units off the window that is, as many as were counted in it, and what is
// beyond that off the one before, where that still counts. Of a log the oldest
// are given back. A key that is not held is full, and stays so. It fails as
// AllowN does, but n may be above the burst. Result.Granted is 0, Remaining what
// there is now.
//
// What comes back between the admission and the refund is counted twice where
// the key was full meanwhile, so the bound of the package comment holds for what
// was admitted less what was refunded, plus that. Cancel of a Reservation knows
// when its units were taken and avoids it.
func (l *Limiter) Refund(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.refundAt(time.Now(), key, n)
}

func (l *Limiter) refundAt(now time.Time, key string, n int64) (hybridlimit.Result, error) {
	s, own, err := l.lock(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	defer s.mu.Unlock()
	p := s.limitOf(l, key, nil, own)
	if static(p.limit.Algorithm) {
		res := l.static(p, n)
		res.Allowed, res.Granted, res.RetryAfter = true, 0, 0
		return res, nil
	}
	at, behind := s.tick(now.Sub(l.start))
	e := s.glance(key, p, own)
	if s.keys.Contains(key) {
		e = s.find(key, p, own)
		e.use(p, at)
		e.refund(at, n)
	}
	res := l.result(e.look(at, 0), p, behind)
	res.Allowed = true
	return res, nil
}
