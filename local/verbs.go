package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
)

// AllowLimit is AllowN under a limit that comes with the call, for example a quota in the caller's token. The limit
// must be of the limiter's algorithm, or Unlimited or Blocked, whose answers do not describe the key. An invalid limit
// is a *hybridlimit.InvalidError, and nothing is taken. A limit that was used recently, with any key, is neither
// validated nor converted again.
//
// A key that is not held begins full under the limit. A key that is held changes to it as SetLimit describes, and a
// later call without a limit restores the key's own. So if calls of one key alternate between limits, the key refills
// between two calls at the rate of the earlier call, and a bucket holds at most the smallest burst.
func (l *Limiter) AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (res hybridlimit.Result, err error) {
	p, err := l.planFor(limit)
	if err == nil {
		err = l.decide(&res, l.now(), key, n, p, l.request(ctx))
	}
	return res, err
}

// SetLimit changes the limit of all keys without a limit of their own (from Config.LimitFor). It may change rate,
// period and burst, but not the algorithm. Unlimited and Blocked may replace any limit and may be replaced by it; the
// usage of keys stays. The error is a *hybridlimit.InvalidError, or wraps hybridlimit.ErrClosed; nothing has changed
// then.
//
// SetLimit never refills a key that is held:
//
//   - buckets: the level stays, in units, also below zero. Units above the new burst are lost. The new rate refills
//     from then on, so a key that had used all of a small limit refills towards a larger one.
//   - queue: its content stays, in units, and is served at the new rate. A Delay that was already returned stays valid.
//   - windows and log: used units stay used, and the new Rate counts at once. With a new Period, the current fixed
//     window keeps its end. The estimate of a sliding window becomes the count of its current window. The entries of a
//     log keep the times at which they leave.
//
// A key that is not held begins full under the new limit. SetLimit visits all keys, one locked shard after the other:
// about 50 ms for 100 000 keys. IdleAfter stays, or grows to the time that the limit needs.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	now := l.now()
	p, err := l.planFor(limit)
	if err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	if err := l.each(func(s *shard) { s.change(p, now) }); err != nil {
		return err
	}
	l.base.Store(p)
	return nil
}

// AllowAtMost takes the available units of key, 0 to n. Granted is their number. Allowed is true if it is above 0. n
// may be above the burst. AllowAtMost fails as AllowN does.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	var at place
	return l.call(&at, key, n, true, func() hybridlimit.Result {
		e := at.use(l.request(ctx))
		seen := e.look(at.at, 1+at.floor)
		some, delay := max(0, min(n, seen.room-at.floor)), time.Duration(0)
		if some > 0 {
			delay, _, seen = e.decide(at.at, some, 0) // look and decide agree
		}
		res := l.result(&at, seen)
		res.Allowed, res.Granted, res.Delay = some > 0, some, after(delay, at.behind)
		return res
	})
}

// Charge takes n units of key, available or not: the actual cost of a call that was admitted for an estimate. Missing
// units become a debt, and later calls are denied until the refill has paid it. A debt is at most one burst; Charge
// drops units beyond that. The debt of a fixed window is taken from the next window. Charge fails as AllowN does, but n
// may be above the burst. Result.Granted is n.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	var at place
	res, err := l.call(&at, key, n, false, func() hybridlimit.Result {
		e := at.use(l.request(ctx))
		e.charge(at.at, n)
		return l.result(&at, e.look(at.at, 0))
	})
	if err == nil {
		res.Allowed, res.Granted, res.RetryAfter = true, n, 0
	}
	return res, err
}

// Refund gives back n units of key, for example for a call that was admitted and did not happen. The key never holds
// more units than when it is full. A refund names no window: it reduces the count of the current window, and then the
// count of the window before, if that still counts. In a log it gives back the oldest units. A key that is not held is
// full and stays full. Refund fails as AllowN does, but n may be above the burst. Result.Granted is 0.
//
// If the key was full between the admission and the refund, the refill of that time comes back twice. So the bound of
// the package comment holds for the units admitted, less the units refunded, plus that refill. Cancel of a Reservation
// avoids this, because it knows the time at which its units were taken.
func (l *Limiter) Refund(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	var at place
	res, err := l.call(&at, key, n, false, func() hybridlimit.Result {
		if at.entry != nil {
			at.use("").refund(at.at, n)
		}
		return l.result(&at, at.glance().look(at.at, 0))
	})
	if err == nil {
		res.Allowed, res.Granted, res.RetryAfter = true, 0, 0
	}
	return res, err
}

// Peek is PeekN with a cost of 1.
func (l *Limiter) Peek(ctx context.Context, key string) (hybridlimit.Result, error) {
	return l.PeekN(ctx, key, 1)
}

// PeekN returns the answer that AllowN would give, and takes nothing: Granted is 0. It neither creates the key nor
// counts as a use of it. If the last call of the key came with a limit (AllowLimit), PeekN uses that limit. It fails as
// AllowN does.
func (l *Limiter) PeekN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	at := place{peeks: true}
	res, err := l.call(&at, key, n, false, func() hybridlimit.Result {
		e := at.glance()
		at.plan, at.floor = e.plan, l.floor(e.plan.limit)
		if n > e.plan.burst-at.floor {
			return l.never(&at, e.look(at.at, 0))
		}
		seen := e.look(at.at, n+at.floor)
		res := l.result(&at, seen)
		if res.Allowed = seen.retry == 0; res.Allowed && e.plan.limit.Algorithm == hybridlimit.AlgLeakyQueue {
			res.Delay = res.ResetAfter // the whole queue is served first
		}
		return res
	})
	res.Granted = 0
	return res, err
}

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
	res, held, err := l.book(ctx, key, n, hybridlimit.Never)
	if err != nil {
		return nil, err
	}
	if held.entry == nil {
		return hybridlimit.NewReservation(res, nil), nil
	}
	return hybridlimit.NewReservation(res, func(context.Context) error {
		l.cancel(key, held)
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
func (l *Limiter) book(ctx context.Context, key string, n int64, most time.Duration) (hybridlimit.Result, holding, error) {
	var at place
	var held holding
	above := false
	res, err := l.call(&at, key, n, true, func() hybridlimit.Result {
		if above = n > at.plan.burst-at.floor; above {
			return hybridlimit.Result{}
		}
		e := at.use(l.request(ctx))
		b := e.reserve(at.at, n, at.floor, most-min(most, at.behind))
		seen := e.look(at.at, 0)
		seen.retry = b.retry
		res := l.result(&at, seen)
		held = holding{entry: e, soonest: after(b.delay, at.behind)}
		if b.ok {
			res.Allowed, res.Granted, res.Delay = true, n, held.soonest
			held.receipt = e.receipt(at.at, n, b.delay > 0)
		}
		return res
	})
	if above {
		err = fmt.Errorf("local: %w: %d of %d", hybridlimit.ErrExceedsBurst, n, at.plan.burst-at.floor)
	}
	return res, held, err
}

// cancel gives back the units held, if the key still has the same entry.
func (l *Limiter) cancel(key string, held holding) {
	now := l.now()
	_ = l.visit(key, func(s *shard) { // a closed limiter gives nothing back
		at, _ := s.tick(now)
		if e, _ := s.keys.Peek(key); e != nil && e == held.entry {
			e.undo(at, held.receipt)
		}
	})
}

// Wait takes n units of key and returns when they may be used. The Result describes the moment at which the units were
// taken, with Delay 0, because the delay is over. After an error the caller holds no units. The errors are:
//
//   - the errors of AllowN;
//   - hybridlimit.ErrExceedsBurst for an n above the burst;
//   - at once, an error that wraps context.DeadlineExceeded, if ctx ends before the units can be available;
//   - the error of ctx, if it ends during the wait. The units are given back as by Cancel of a Reservation;
//   - hybridlimit.ErrClosed, if the limiter is closed during the wait.
//
// Buckets and queues serve calls in order, up to a burst of debt or a full queue. A queue also spaces the calls out.
// Beyond that, and always with windows and logs, callers try again when they could succeed. The first caller to try
// gets the units, so a large cost may wait long beside many small ones. Wait costs a timer and no goroutine.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	for {
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, fmt.Errorf("local: %w", err)
		}
		most := hybridlimit.Never
		if deadline, ok := ctx.Deadline(); ok {
			if most = time.Until(deadline); most < 0 { // the timer of ctx is late
				return hybridlimit.Result{}, fmt.Errorf("local: %w", context.DeadlineExceeded)
			}
		}
		res, held, err := l.book(ctx, key, n, most)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		if res.RetryAfter == hybridlimit.Never {
			return res, fmt.Errorf("local: %w", hybridlimit.ErrExceedsBurst)
		}
		if held.soonest > most {
			return hybridlimit.Result{}, fmt.Errorf("local: a wait of %v would exceed the deadline: %w", held.soonest, context.DeadlineExceeded)
		}
		if res.Allowed {
			if err := waiting.Sleep(ctx, l.closed, res.Delay); err != nil {
				l.cancel(key, held)
				return hybridlimit.Result{}, fmt.Errorf("local: %w", err)
			}
			res.Delay = 0
			return res, nil
		}
		if err := waiting.Sleep(ctx, l.closed, res.RetryAfter); err != nil {
			return hybridlimit.Result{}, fmt.Errorf("local: %w", err)
		}
	}
}

// History returns the admissions of key that a log still counts, the oldest first, with their request ids
// (hybridlimit.WithRequestID). Times are exact to the nanosecond, in Unix time by the wall clock at the limiter's
// start. Units given back and denied calls are not in it. History does not count as a use of the key. It blocks the
// key's shard while it copies the entries. For other algorithms, which keep no log, the error is
// hybridlimit.ErrUnsupported. Otherwise History fails as Allow does.
func (l *Limiter) History(_ context.Context, key string) ([]hybridlimit.Admission, error) {
	now, log := l.now(), []hybridlimit.Admission{}
	err := l.visit(key, func(s *shard) {
		if e, ok := s.keys.Peek(key); ok {
			if j, ok := e.state.(*journal); ok {
				at, _ := s.tick(now)
				log = j.history(at, l.start)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if of := hybridlimit.Algorithm(l.counting.Load()); of != hybridlimit.AlgSlidingLog {
		return nil, fmt.Errorf("local: History(%q): %w: %v keeps no log", key, hybridlimit.ErrUnsupported, of)
	}
	return log, nil
}

// Reset gives key the state of an unused one. A later Cancel gives back nothing of an earlier reservation. It fails as
// Allow does.
func (l *Limiter) Reset(_ context.Context, key string) error {
	return l.visit(key, func(s *shard) { s.keys.Remove(key) })
}

// Invalidate makes the next call for key ask Config.LimitFor for its limit, without waiting for Config.LimitRefresh.
// Call it when a key gets another limit, for example with a message about a customer's new plan. The answer changes the
// limit as SetLimit does. Calls that have begun before may still be decided by the old limit. Without Config.LimitFor,
// or for a key that is not held, nothing happens. Invalidate fails as Reset does.
func (l *Limiter) Invalidate(key string) error {
	return l.visit(key, func(s *shard) {
		l.voids.Add(1)
		if e, ok := s.keys.Peek(key); ok {
			e.asks = 0
		}
	})
}

// InvalidateAll is Invalidate for all keys, for example after LimitFor's source was loaded anew. It visits all keys,
// one locked shard after the other (BenchmarkInvalidateAll has the time).
func (l *Limiter) InvalidateAll() error {
	l.voids.Add(1)
	return l.each(func(s *shard) {
		for _, e := range s.keys.Values() {
			e.asks = 0
		}
	})
}

// InvalidLimits returns the number of answers of Config.LimitFor that were not valid, so that a key that is held kept
// its limit.
func (l *Limiter) InvalidLimits() uint64 { return l.invalid.Load() }
