package local

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// AllowAtMost takes as many of n units of key as there are, 0 to n. Granted is
// their number, and Allowed is true if it is not 0. n may be above the burst. It
// fails as AllowN does.
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
	if ok { // always: look and take agree
		res.Allowed, res.Granted, res.Delay = true, n, after(delay, behind)
	}
	return res, nil
}

// Charge takes n units of key, there or not: for example the actual cost of a call
// that was admitted for an estimate. Missing units are a debt, which the refill
// pays first: later calls are denied until it is paid. A debt is at most one burst;
// Charge drops units beyond that. The debt of a fixed window is taken from the next
// window. Charge fails as AllowN does, but n may be above the burst. Result.Granted
// is n, and Remaining the units left.
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

// Refund gives n units of key back, for example those of a call that was admitted
// and did not happen. It fills the key at most. A refund names no window: it
// reduces the count of the current window, and then that of the one before, if
// that still counts. In a log it gives back the oldest units. A key that is not
// held is full and stays full. Refund fails as AllowN does, but n may be above the
// burst. Result.Granted is 0, and Remaining the units left.
//
// If the key was full between the admission and the refund, the refill of that
// time comes back twice. So the bound of the package comment holds for the units
// admitted less those refunded, plus that refill. Cancel of a Reservation avoids
// this: it knows when its units were taken.
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
