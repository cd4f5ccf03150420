package local

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// AllowAtMost takes the available units of key, 0 to n. Granted is their number. Allowed is true if it is above 0. n
// may be above the burst. AllowAtMost fails as AllowN does.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.atMost(l.now(), key, n, l.request(ctx))
}

func (l *Limiter) atMost(now time.Duration, key string, n int64, request string) (hybridlimit.Result, error) {
	var at place
	if err := l.lock(&at, now, key, n, true); err != nil {
		return hybridlimit.Result{}, err
	}
	defer at.mu.Unlock()
	t, behind := at.tick(now)
	p := at.limit(nil)
	if static(p.limit.Algorithm) {
		return l.static(p, n), nil
	}
	e := at.find(p)
	e.use(p, t)
	floor := l.floor(p)
	seen := e.look(t, 1+floor)
	if n = min(n, seen.room-floor); n < 1 {
		return l.result(seen, e.plan, behind), nil
	}
	e.by(request)
	delay, ok := e.state.take(e.plan, t, n)
	res := l.result(e.look(t, 0), e.plan, behind)
	if ok { // always: look and take agree
		res.Allowed, res.Granted, res.Delay = true, n, after(delay, behind)
	}
	return res, nil
}

// Charge takes n units of key, whether they are available or not. It is for the actual cost of a call that was admitted
// for an estimate. Missing units become a debt. The refill pays the debt first, and later calls are denied until it is
// paid. A debt is at most one burst; Charge drops units beyond that. The debt of a fixed window is taken from the next
// window. Charge fails as AllowN does, but n may be above the burst. Result.Granted is n, and Remaining is the number
// of units left.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.charge(l.now(), key, n, l.request(ctx))
}

func (l *Limiter) charge(now time.Duration, key string, n int64, request string) (hybridlimit.Result, error) {
	var at place
	if err := l.lock(&at, now, key, n, true); err != nil {
		return hybridlimit.Result{}, err
	}
	defer at.mu.Unlock()
	p := at.limit(nil)
	if static(p.limit.Algorithm) {
		res := l.static(p, n)
		res.Allowed, res.Granted, res.RetryAfter = true, n, 0
		return res, nil
	}
	t, behind := at.tick(now)
	e := at.find(p)
	e.use(p, t)
	e.by(request)
	e.charge(t, n)
	res := l.result(e.look(t, 0), p, behind)
	res.Allowed, res.Granted = true, n
	return res, nil
}

// Refund gives back n units of key, for example for a call that was admitted and did not happen. The key never holds
// more units than when it is full. A refund names no window: it reduces the count of the current window, and then the
// count of the window before, if that still counts. In a log it gives back the oldest units. A key that is not held is
// full and stays full. Refund fails as AllowN does, but n may be above the burst. Result.Granted is 0, and Remaining is
// the number of units left.
//
// If the key was full between the admission and the refund, the refill of that time comes back twice. So the bound of
// the package comment holds for the units admitted, less the units refunded, plus that refill. Cancel of a Reservation
// avoids this, because it knows the time at which its units were taken.
func (l *Limiter) Refund(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.refund(l.now(), key, n)
}

func (l *Limiter) refund(now time.Duration, key string, n int64) (hybridlimit.Result, error) {
	var at place
	if err := l.lock(&at, now, key, n, true); err != nil {
		return hybridlimit.Result{}, err
	}
	defer at.mu.Unlock()
	p := at.limit(nil)
	if static(p.limit.Algorithm) {
		res := l.static(p, n)
		res.Allowed, res.Granted, res.RetryAfter = true, 0, 0
		return res, nil
	}
	t, behind := at.tick(now)
	held := at.entry != nil
	e := at.glance(p)
	if held {
		at.find(p)
		e.use(p, t)
		e.refund(t, n)
	}
	res := l.result(e.look(t, 0), p, behind)
	res.Allowed = true
	return res, nil
}
