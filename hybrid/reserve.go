package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// longest is the MaxDelay of a reservation without a deadline.
const longest = algo.Never - 1 // µs

// Reserve takes n units of key now: from what this process has in hand, or
// else by asking Redis for this very call, of a bucket also such as will have
// come back only later. Delay says when they may be used. At most a burst can
// be booked ahead. A queue's place is ahead by itself, and it has no more of
// them for who reserves; windows and logs cannot be booked ahead. A cost above
// the burst is ErrExceedsBurst. Without Redis the fallback decides, and books
// nothing ahead.
//
// Cancel gives back: of a window to that in which the units were taken, of a log
// the entry that was made, of a bucket no more than keeps what was booked later
// within the limit. It goes with a sync of its own, and so exactly once; where
// there is no memory for the key, with a message that is sent once.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	if err := l.check(key, n); err != nil {
		return nil, err
	}
	res, back, err := l.book(ctx, key, n, longest)
	if err != nil {
		return nil, err
	}
	return hybridlimit.NewReservation(res, func(ctx context.Context) error {
		if res.Source == hybridlimit.SourceSwitch { // nothing was taken
			return nil
		}
		return l.giveBack(ctx, key, n, back)
	}), nil
}

// Wait takes n units of key as soon as they can be had, and returns when they
// may be used: with a queue it is the shaper. Units in hand are had at once;
// others are booked with Redis as Reserve does, or, where nothing can be booked
// ahead, asked for again when RetryAfter has passed. It fails at once when
// ctx's deadline cannot be met (context.DeadlineExceeded) or the burst can
// never hold n (ErrExceedsBurst). When ctx ends while it waits the units are
// given back.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.check(key, n); err != nil {
		return hybridlimit.Result{}, err
	}
	who := waiting.Caller{Package: "hybrid", Key: key, N: n, Done: l.done, Longest: longest * time.Microsecond}
	return who.Wait(ctx, func(most time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		if err := l.check(key, n); err != nil {
			return hybridlimit.Result{}, nil, err
		}
		res, back, err := l.book(ctx, key, n, max(1, int64(most/time.Microsecond)))
		if err != nil || !res.Allowed || res.Shadowed || res.Source == hybridlimit.SourceSwitch {
			return res, nil, err
		}
		return res, func(ctx context.Context) error { return l.giveBack(ctx, key, n, back) }, nil
	})
}

// booked describes the units of a reservation, so that they can be given back.
type booked struct {
	op    algo.Op // gives back what Redis gave to this very call; Refund 0: it was in hand
	kept  bool    // its key is in memory: without Redis it can wait there
	taken account.Taken
}

// book takes n units that can be had within most µs.
func (l *Limiter) book(ctx context.Context, key string, n, most int64) (res hybridlimit.Result, back booked, err error) {
	if res, ok := l.decidedBySwitch(n); ok {
		l.logDenial(key, nil, n, &res)
		return res, back, nil
	}
	at, err := l.place(key)
	if err != nil {
		return res, back, err
	}
	res = hybridlimit.Result{Limit: at.plan.Limit.BurstSize(), Policy: l.cfg.Name}
	if res, ok := static(at.plan, res, n); ok {
		return l.answer(key, res, n), back, nil
	}
	if n > res.Limit {
		return res, back, fmt.Errorf("hybrid: %d units of %q: %w (%d)", n, key, hybridlimit.ErrExceedsBurst, res.Limit)
	}
	var e *entry
	if !l.exactly(at.plan) {
		var v account.Verdict
		var w *account.Waiter
		var again bool
		if e, v, w, again, err = l.inHand(key, at, n, &back); err != nil {
			return hybridlimit.Result{}, back, err
		}
		back.kept = e != nil
		if v.Source != hybridlimit.SourceUnknown {
			return l.answer(key, l.fill(res, at.plan, v, n), n), back, nil
		}
		// What Redis books must stand behind all that it has not heard of.
		if ok, err := l.settled(ctx, e, w, again); !ok {
			l.beside(e, n, wire.Answer{}, true)
			if err != nil {
				return hybridlimit.Result{}, back, err
			}
			res, err = l.exactFallback(key, at, res, n)
			return res, back, err
		}
	}
	ans, now, ok := l.askNow(ctx, at, algo.Op{Asks: []int64{n}, MaxDelay: most})
	l.beside(e, n, ans, ok)
	if !ok {
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, back, err
		}
		res, err = l.exactFallback(key, at, res, n)
		return res, back, err
	}
	back.op = at.plan.Cancel(ans, now)
	back.taken.At, back.taken.Direct = back.op.RefundAt, back.op.Refund > 0
	res = l.fill(res, at.plan, said(at.plan, ans, n), n)
	res.ResetAfter = time.Duration(at.plan.Reset(ans)) * time.Microsecond
	return l.answer(key, res, n), back, nil
}

// giveBack gives back what book took.
func (l *Limiter) giveBack(ctx context.Context, key string, n int64, back booked) error {
	if err := l.check(key, n); err != nil {
		return err
	}
	if _, ok := l.uncounted(0); ok && back.op.Refund == 0 {
		return nil
	}
	at, err := l.place(key)
	if err != nil || account.Static(at.plan.Limit) {
		return err
	}
	if back.op.Refund > 0 && !back.kept {
		_, err = l.refundNow(ctx, key, at, back.op)
		return err
	}
	_, err = l.refundLater(ctx, key, at, n, back, account.SyncNow)
	return err
}

// inHand takes n units that need not be asked for, and notes when. Else it notes that a direct call is about to ask for them, and
// says nothing: SourceUnknown. While Redis has not heard of all units that were admitted or given back, w waits for the answer that
// follows; twice: it needs a second one, because a sync without them is on its way.
func (l *Limiter) inHand(key string, at place, n int64, back *booked) (e *entry, v account.Verdict, w *account.Waiter, twice bool, err error) {
	e, _, err = l.lockAt(key, at)
	if e == nil || err != nil {
		return nil, account.Verdict{}, nil, false, err
	}
	ev := e.event()
	v, decided := e.account.DirectBegin(&ev.conditions, n, ev.now)
	back.taken = account.Taken{At: e.moment(&ev.conditions, ev.now+v.Delay), Ns: ev.now}
	if !decided {
		var must bool
		if must, twice = e.account.MustSettle(); must {
			w, v.Sync = e.expect(), account.SyncNow
		}
	}
	return e, ev.end(v), w, twice, nil
}

// expect adds a waiter that asks for nothing: it waits for the next answer. Call it under e.mu, and have the entry synced.
func (e *entry) expect() *account.Waiter {
	w := account.NewWaiter(0, e.plan.Load())
	e.waiters.Add(w)
	return w
}

// settled waits until Redis has heard of what was admitted and given back before w. It reports false where it has not within
// MaxWait.
func (l *Limiter) settled(ctx context.Context, e *entry, w *account.Waiter, twice bool) (bool, error) {
	for w != nil {
		if v, err := l.wait(ctx, e, w); err != nil || v.Source != hybridlimit.SourceRedis {
			return false, err
		}
		if w = nil; twice {
			twice = false
			e.lock()
			if e.dead {
				e.unlock()
				return false, nil
			}
			ev := e.event()
			w = e.expect()
			ev.end(account.Verdict{Sync: account.SyncNow})
		}
	}
	return true, nil
}

// moment is a time as algo.Op.RefundAt has it: the number of the window, or µs of Redis time; 0: not known.
func (e *entry) moment(c *account.Conditions, at int64) int64 {
	at = max(0, e.lim.hub.clocks.redis(e.tag(), at))
	if c.Window.Period > 0 {
		return c.Window.Number(at)
	}
	return at
}

// beside books the end of a direct call for n units whose key has an entry.
func (l *Limiter) beside(e *entry, n int64, ans wire.Answer, ok bool) {
	if e == nil {
		return
	}
	granted := n // it may have been granted, as far as this process knows
	if ok {
		granted = ans.Granted
	}
	e.lock()
	if e.dead {
		e.unlock()
		return
	}
	ev := e.event()
	e.account.DirectEnd(&ev.conditions, n, granted)
	ev.end(account.Verdict{})
}

// Refund gives back n units of key, of a call that came to less than was taken
// for it: off what is still owed, and beyond that with the next sync. The key
// never holds more than when it is full. Of a window they are units of the
// current one: call it before the window ends, or Cancel a reservation, which
// knows its window. The bound of the package documentation holds for what was
// decided, not for what was given back.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.check(key, n); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.uncounted(0); ok {
		return res, nil
	}
	at, err := l.place(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if account.Static(at.plan.Limit) {
		return hybridlimit.Result{Allowed: true, Limit: at.plan.Limit.BurstSize(), Policy: l.cfg.Name, Source: hybridlimit.SourceStatic}, nil
	}
	return l.refundLater(ctx, key, at, n, booked{taken: account.Taken{At: ofNow}}, account.SyncLazily)
}

// ofNow stands for the current window, and for no time of a bucket.
const ofNow = -1

// refundLater gives back n units with a sync, or at once where there is no
// memory for the key. What Redis has not heard of it is not told.
func (l *Limiter) refundLater(ctx context.Context, key string, at place, n int64, back booked, soon account.Sync) (hybridlimit.Result, error) {
	var e *entry
	if !l.exactly(at.plan) {
		var err error
		if e, _, err = l.lockAt(key, at); err != nil {
			return hybridlimit.Result{}, err
		}
	}
	if e == nil {
		return l.refundNow(ctx, key, at, algo.Op{Refund: n, RefundAt: max(0, back.taken.At)})
	}
	ev := e.event()
	taken := back.taken
	if taken.At == ofNow {
		if taken.At = 0; ev.conditions.Window.Period > 0 {
			taken.At = e.moment(&ev.conditions, ev.now)
		}
	}
	next, books := e.account.Refund(&ev.conditions, n, taken, soon)
	l.count.book(books)
	v := ev.end(account.Verdict{Sync: next})
	res := hybridlimit.Result{Allowed: true, Limit: at.plan.Limit.BurstSize(), Policy: l.cfg.Name}
	res.Source, res.Remaining = hybridlimit.SourceCredit, max(0, v.Left)
	res.ResetAfter = l.resetAfter(at.plan, v.Left, v.Ends)
	return res, nil
}

// refundNow gives back by a message of its own, sent once.
func (l *Limiter) refundNow(ctx context.Context, key string, at place, op algo.Op) (hybridlimit.Result, error) {
	ans, _, ok := l.askNow(ctx, at, op)
	if !ok {
		return hybridlimit.Result{}, errors.Join(ctx.Err(), hybridlimit.ErrUnavailable)
	}
	l.accept(key)
	l.count.returned.Add(op.Refund)
	l.count.refunded.Add(op.Refund)
	return hybridlimit.Result{
		Allowed: true, Limit: at.plan.Limit.BurstSize(), Policy: l.cfg.Name, Source: hybridlimit.SourceRedis,
		Remaining:  at.plan.Units(ans.Level),
		ResetAfter: time.Duration(at.plan.Reset(ans)) * time.Microsecond,
	}, nil
}

// Reset forgets what key has used, in Redis and here: what is in hand or owed
// is given up, and counted so. A sync that is on its way still counts. Other
// processes may deny from memory for some seconds more, and spend what they
// have leased.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.check(key, 1); err != nil {
		return err
	}
	at, err := l.place(key)
	if err != nil || account.Static(at.plan.Limit) {
		return err
	}
	if _, _, ok := l.askNow(ctx, at, algo.Op{Reset: true}); !ok {
		return errors.Join(ctx.Err(), hybridlimit.ErrUnavailable)
	}
	if l.store.lookup(key) == nil {
		return nil
	}
	e, _, err := l.lockAt(key, at)
	if e == nil || err != nil {
		return err
	}
	ev := e.event()
	l.count.book(e.account.Forget())
	ev.end(account.Verdict{})
	return nil
}
