package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
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
	op   algo.Op // gives back what Redis gave to this very call; Refund 0: it was in hand
	kept bool    // its key is in memory: without Redis it can wait there
	at   int64   // when it was taken, as algo.Op.RefundAt; 0: not known
	ns   int64   // when it was taken of what was in hand, by the hub's clock
}

// mayBeUnsent reports whether Redis need not have heard of the units. Of a
// booking that is so until the next sync; of a call it does not matter which of
// its key's units are given back.
func (b booked) mayBeUnsent(s *state) bool {
	switch {
	case b.op.Refund > 0:
		return false
	case b.ns == 0:
		return true
	}
	return !s.frozen && (!s.view.known || s.view.sent <= b.ns)
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
	res = hybridlimit.Result{Limit: at.rules.limit.BurstSize(), Policy: l.cfg.Name}
	if res, ok := at.rules.static(res, n); ok {
		return l.answer(key, res, n), back, nil
	}
	if n > res.Limit {
		return res, back, fmt.Errorf("hybrid: %d units of %q: %w (%d)", n, key, hybridlimit.ErrExceedsBurst, res.Limit)
	}
	var e *entry
	if !l.exactly(at.rules) {
		var v verdict
		var w *waiter
		var again bool
		if e, v, w, again, err = l.inHand(key, at, n, &back); err != nil {
			return hybridlimit.Result{}, back, err
		}
		back.kept = e != nil
		if v.source != hybridlimit.SourceUnknown {
			return l.answer(key, l.fill(res, at.rules, v, n), n), back, nil
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
	back.op = at.rules.Cancel(ans, now)
	back.at = back.op.RefundAt
	res = l.fill(res, at.rules, at.rules.said(ans, n), n)
	res.ResetAfter = time.Duration(at.rules.Reset(ans)) * time.Microsecond
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
	if err != nil || static(at.rules.limit) {
		return err
	}
	if back.op.Refund > 0 && !back.kept {
		_, err = l.refundNow(ctx, key, at, back.op)
		return err
	}
	_, err = l.refundLater(ctx, key, at, n, back, syncNow)
	return err
}

// inHand takes n units that need not be asked for, and notes when. Else it notes
// that an exact call is about to ask for them, and says nothing: SourceUnknown.
// While Redis has not heard of all units that were admitted or given back, w
// waits for the answer that follows; again: it needs a second one, because a sync
// without them is on its way.
func (l *Limiter) inHand(key string, at place, n int64, back *booked) (e *entry, v verdict, w *waiter, again bool, err error) {
	e, _, err = l.lockAt(key, at)
	if e == nil || err != nil {
		return nil, verdict{}, nil, false, err
	}
	v = l.event(e, func(t terms, now int64, broken bool) verdict {
		s := &e.state
		v := s.inHand(&t, n, now, broken)
		back.at, back.ns = e.moment(&t, now+v.delay), now
		if v.source == hybridlimit.SourceUnknown && s.owed()+s.back() > 0 {
			again = s.frozen && s.pending+s.refunds.units() > 0
			w, v.sync = e.expect(), syncNow
		}
		return v
	})
	return e, v, w, again, nil
}

// expect adds a waiter that asks for nothing: it waits for the next answer. Call
// it under e.mu, and have the entry synced.
func (e *entry) expect() *waiter {
	w := &waiter{by: e.rules.Load(), out: make(chan verdict, 1)}
	e.waiters = append(e.waiters, w)
	return w
}

// settled waits until Redis has heard of what was admitted and given back before
// w. It reports false where it has not within MaxWait.
func (l *Limiter) settled(ctx context.Context, e *entry, w *waiter, again bool) (bool, error) {
	for w != nil {
		if v, err := l.wait(ctx, e, w); err != nil || v.source != hybridlimit.SourceRedis {
			return false, err
		}
		if w = nil; again {
			again = false
			e.lock()
			if e.dead {
				e.unlock()
				return false, nil
			}
			l.event(e, func(terms, int64, bool) verdict {
				w = e.expect()
				return verdict{sync: syncNow}
			})
		}
	}
	return true, nil
}

// inHand is Limiter.inHand of a state.
func (s *state) inHand(t *terms, n, now int64, broken bool) verdict {
	switch {
	case s.atOnce(n) >= n:
		s.demand.note(n, now)
		return s.hand(n, now)
	case broken:
		return s.fallback(t, n, now)
	case s.creditLeft(t, now) >= n:
		s.demand.note(n, now)
		s.owe(n)
		return verdict{action: admit, source: hybridlimit.SourceCredit, sync: syncLazily}
	}
	s.asking += n
	return verdict{}
}

// moment is a time as algo.Op.RefundAt has it: the number of the window, or µs of
// Redis time; 0: not known.
func (e *entry) moment(t *terms, at int64) int64 {
	at = max(0, e.lim.hub.clocks.redis(e.tag(), at))
	if t.windowed() {
		return t.window.Number(at)
	}
	return at
}

// beside books what an exact call got beside its entry.
func (l *Limiter) beside(e *entry, n int64, ans wire.Answer, ok bool) {
	if e == nil {
		return
	}
	granted := n // it may have been granted, for all that is known
	if ok {
		granted = ans.Granted
	}
	e.lock()
	if e.dead {
		e.unlock()
		return
	}
	l.event(e, func(t terms, _ int64, _ bool) verdict {
		e.state.exactly(&t, n, granted)
		return verdict{}
	})
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
	if static(at.rules.limit) {
		return hybridlimit.Result{Allowed: true, Limit: at.rules.limit.BurstSize(), Policy: l.cfg.Name, Source: hybridlimit.SourceStatic}, nil
	}
	return l.refundLater(ctx, key, at, n, booked{at: ofNow}, syncLazily)
}

// ofNow stands for the current window, and for no time of a bucket.
const ofNow = -1

// refundLater gives back n units with a sync, or at once where there is no
// memory for the key. What Redis has not heard of it is not told.
func (l *Limiter) refundLater(ctx context.Context, key string, at place, n int64, back booked, soon when) (hybridlimit.Result, error) {
	var e *entry
	if !l.exactly(at.rules) {
		var err error
		if e, _, err = l.lockAt(key, at); err != nil {
			return hybridlimit.Result{}, err
		}
	}
	if e == nil {
		return l.refundNow(ctx, key, at, algo.Op{Refund: n, RefundAt: max(0, back.at)})
	}
	v := l.event(e, func(t terms, now int64, _ bool) verdict {
		s, taken := &e.state, back.at
		if taken == ofNow {
			if taken = 0; t.windowed() {
				taken = e.moment(&t, now)
			}
		}
		left := n
		if back.mayBeUnsent(s) && (!t.windowed() || taken == 0 || s.window == 0 || s.window == taken) {
			left -= min(n, s.pending)
			s.pending -= n - left
		}
		if left > 0 {
			l.count.refunded.Add(s.refunds.add(left, taken, t.windowed()))
		}
		if s.refunds.units() == 0 {
			return verdict{}
		}
		return verdict{sync: soon}
	})
	l.count.returned.Add(n)
	res := hybridlimit.Result{Allowed: true, Limit: at.rules.limit.BurstSize(), Policy: l.cfg.Name}
	res.Source, res.Remaining = hybridlimit.SourceCredit, max(0, v.left)
	res.ResetAfter = l.resetAfter(at.rules, v.left, v.ends)
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
		Allowed: true, Limit: at.rules.limit.BurstSize(), Policy: l.cfg.Name, Source: hybridlimit.SourceRedis,
		Remaining:  at.rules.Units(ans.Level),
		ResetAfter: time.Duration(at.rules.Reset(ans)) * time.Microsecond,
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
	if err != nil || static(at.rules.limit) {
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
	l.event(e, func(terms, int64, bool) verdict {
		s := &e.state
		l.count.expired.Add(s.held())
		l.count.dropped.Add(s.pending + s.share.admitted - s.refunds.units())
		s.leases, s.booked, s.view, s.refusal = [2]lease{}, booking{}, view{}, refusal{}
		s.pending, s.window, s.refunds, s.share = 0, 0, refunds{}, share{}
		return verdict{}
	})
	return nil
}
