package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Reserve takes n units of key now, to be used once Delay has passed, if need be
// before they are there. It fails as AllowN does, and with
// hybridlimit.ErrExceedsBurst for an n above the burst. What can be had:
//
//   - buckets: units that come back later, down to one burst of debt. Use them
//     after Delay, and they are used no faster than the limit says.
//   - queue: a place in it. Delay is what AllowN would say.
//   - windows and log: what is there, with no Delay. A count of the past cannot
//     tell what will be free, other than by keeping book of the future, which
//     would be another algorithm.
//
// What cannot be had is not Allowed, and RetryAfter is when to ask again.
//
// Cancel gives back what was taken, as if it had never been, as far as others
// keep the times that they were told. Of a bucket: of n units those that were
// not booked ahead by others after them, as with golang.org/x/time/rate, and the
// rest when those others cancel too; all of it if nobody did. Once Delay has
// passed, or if other units were given back meanwhile, it is what surely would
// not have run over since. Of a queue, the last
// place, with any before it that were cancelled; one in the middle passes
// unused: those behind were told when to start, and whoever came next would
// start together with one of them. Of a window, what still counts in the window
// in which it was taken. It is not an
// error of Cancel when there is nothing to give back any more, because the key
// was reset, evicted or dropped, or the limiter closed. A bucket or a queue
// whose limit has changed meanwhile gets nothing back.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	return l.reserveAt(time.Now, key, n, l.request(ctx))
}

// reserveAt reads clock once now and once to cancel.
func (l *Limiter) reserveAt(clock func() time.Time, key string, n int64, request string) (*hybridlimit.Reservation, error) {
	res, held, err := l.bookAt(clock(), key, n, hybridlimit.Never, request)
	if err != nil {
		return nil, err
	}
	if held.entry == nil {
		return hybridlimit.NewReservation(res, nil), nil
	}
	return hybridlimit.NewReservation(res, func(context.Context) error {
		l.cancelAt(clock(), key, held)
		return nil
	}), nil
}

// holding is what a caller holds of a key.
type holding struct {
	receipt
	entry *entry
	// soonest is when what could not be had will be there, if nobody else
	// takes any.
	soonest time.Duration
}

// bookAt takes n units that will be there within most.
func (l *Limiter) bookAt(now time.Time, key string, n int64, most time.Duration, request string) (hybridlimit.Result, holding, error) {
	s, own, err := l.lock(key, n)
	if err != nil {
		return hybridlimit.Result{}, holding{}, err
	}
	defer s.mu.Unlock()
	at, behind := s.tick(now.Sub(l.start))
	p := s.limitOf(l, key, nil, own)
	if static(p.limit.Algorithm) {
		return l.static(p, n), holding{}, nil
	}
	if n > p.burst {
		return hybridlimit.Result{}, holding{}, fmt.Errorf("local: %w: %d of %d", hybridlimit.ErrExceedsBurst, n, p.burst)
	}
	e := s.find(key, p, own)
	e.use(p, at)
	e.by(request)
	b := e.state.book(p, at, n, most-min(most, behind))
	seen := e.look(at, 0)
	seen.retry = b.retry
	res := l.result(seen, p, behind)
	held := holding{entry: e, soonest: after(b.delay, behind)}
	if b.ok {
		res.Allowed, res.Granted, res.Delay = true, n, held.soonest
		held.receipt = e.receipt(at, n, b.delay > 0)
	}
	return res, held, nil
}

// cancelAt gives back what is held, if the key still is the same.
func (l *Limiter) cancelAt(now time.Time, key string, held holding) {
	s := l.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return
	}
	at, _ := s.tick(now.Sub(l.start))
	if e, ok := s.keys.Peek(key); ok && e == held.entry {
		e.undo(at, held.receipt)
	}
}
