package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Reserve takes n units of key now, for use after Delay. It may take units that come back later. It fails as AllowN
// does, and with hybridlimit.ErrExceedsBurst for an n above the burst. The algorithms differ:
//
//   - buckets: Reserve takes units that come back later, down to one burst of debt. Use after Delay keeps to the limit.
//   - queue: Reserve takes a place in the queue. Delay is that of AllowN.
//   - windows and log: Reserve takes available units, without Delay. A count of the past does not show the future; a
//     record of the future would be another algorithm.
//
// If the units cannot be reserved, Allowed is false and RetryAfter is the time until the next try.
//
// Cancel gives the units back. Later reservations keep their times, so not all units may come back:
//
//   - buckets: the units come back that later reservations have not booked ahead, as with golang.org/x/time/rate. The
//     rest comes back when the later reservations are cancelled too. Without later reservations, all come back. After
//     Delay, or if other units were given back in between, only the units come back that certainly would not have
//     overflowed since.
//   - queue: the last place comes back, with the cancelled places directly before it. An earlier place passes unused:
//     the places behind it keep their start, and a new call in it would start together with one of them.
//   - windows and log: the units come back that still count in the window in which they were taken.
//
// Cancel gives back nothing, without an error, if the key was reset, evicted or dropped, or if the limiter was closed.
// After a change of the limit, a bucket or a queue gets nothing back.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	return l.reserve(l.now, key, n, l.request(ctx))
}

// reserve reads clock once, and once more in Cancel.
func (l *Limiter) reserve(clock func() time.Duration, key string, n int64, request string) (*hybridlimit.Reservation, error) {
	res, held, err := l.book(clock(), key, n, hybridlimit.Never, request)
	if err != nil {
		return nil, err
	}
	if held.entry == nil {
		return hybridlimit.NewReservation(res, nil), nil
	}
	return hybridlimit.NewReservation(res, func(context.Context) error {
		l.cancel(clock(), key, held)
		return nil
	}), nil
}

// holding is the units that a caller holds of a key.
type holding struct {
	receipt
	entry *entry
	// soonest is the time until the units are available, if no other call takes any.
	soonest time.Duration
}

// book takes n units if they are available within most.
func (l *Limiter) book(now time.Duration, key string, n int64, most time.Duration, request string) (hybridlimit.Result, holding, error) {
	var at place
	if err := l.lock(&at, now, key, n, true); err != nil {
		return hybridlimit.Result{}, holding{}, err
	}
	defer at.mu.Unlock()
	t, behind := at.tick(now)
	p := at.limit(nil)
	if static(p.limit.Algorithm) {
		return l.static(p, n), holding{}, nil
	}
	floor := l.floor(p)
	if n > p.burst-floor {
		return hybridlimit.Result{}, holding{}, fmt.Errorf("local: %w: %d of %d", hybridlimit.ErrExceedsBurst, n, p.burst-floor)
	}
	e := at.find(p)
	e.use(p, t)
	e.by(request)
	b := bookAbove(e.state, p, t, n, floor, most-min(most, behind))
	seen := e.look(t, 0)
	seen.retry = b.retry
	res := l.result(seen, p, behind)
	held := holding{entry: e, soonest: after(b.delay, behind)}
	if b.ok {
		res.Allowed, res.Granted, res.Delay = true, n, held.soonest
		held.receipt = e.receipt(t, n, b.delay > 0)
	}
	return res, held, nil
}

// cancel gives back the units held, if the key still has the same entry.
func (l *Limiter) cancel(now time.Duration, key string, held holding) {
	at := l.place(key)
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.closed {
		return
	}
	t, _ := at.tick(now)
	if e, _ := at.keys.Peek(key); e != nil && e == held.entry {
		e.undo(t, held.receipt)
	}
}
