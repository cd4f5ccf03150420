package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/direct"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// longest is the MaxDelay of a reservation without a deadline.
const longest = algo.Never - 1 // µs

// Reserve takes n units of key now. It takes units in hand first, and otherwise asks Redis for this one call. From a
// bucket it can also take units that will come back only later. Delay is the time until the units may be used. At
// most a burst can be booked ahead. A queue serves its places in order anyway, so Reserve gets no additional places
// there. Windows and logs cannot be booked ahead. A cost above the burst returns ErrExceedsBurst. Without Redis the
// fallback decides, and books nothing ahead.
//
// Cancel gives back, depending on the algorithm:
//   - a window: the units, to the window in which they were taken
//   - a log: the entry that was made
//   - a bucket: at most as many units as keep later bookings within the limit
//
// Cancel goes with a sync of its own, so Redis applies it exactly once. If there is no memory for the key, Cancel is
// one message that is sent once.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return nil, err
	}
	res, back, err := l.book(ctx, key, n, longest)
	if err != nil {
		return nil, err
	}
	return hybridlimit.NewReservation(res, func(ctx context.Context) error {
		if res.Source == hybridlimit.SourceSwitch { // a switch takes nothing
			return nil
		}
		return l.giveBack(ctx, key, n, back)
	}), nil
}

// Wait takes n units of key as soon as they are available, and returns when they may be used. With a queue it shapes
// traffic. Wait takes units in hand at once. It books other units with Redis, as Reserve does. If nothing can be booked
// ahead, Wait asks again when RetryAfter has passed. It fails at once if the deadline of ctx cannot be met
// (context.DeadlineExceeded), or if n is above the burst (ErrExceedsBurst). When ctx ends during the wait, the units
// are given back.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return hybridlimit.Result{}, err
	}
	if p := l.control.PlanOf(key); n > p.Burst && !l.control.Keyed() && !account.Static(p.Limit) { // not only when it is its turn
		return hybridlimit.Result{}, exceeds(key, n, p.Burst)
	}
	var each time.Duration
	var burst time.Duration // in which it comes back
	who := waiting.Caller{
		Package: "hybrid", Key: key, N: n, Done: l.done, Longest: longest * time.Microsecond, Lines: &l.lines, Each: &each,
		Turn: func() (time.Duration, time.Duration) { return time.Duration(l.party.Size()) * each, burst },
	}
	return who.Wait(ctx, func(most time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		if err := l.control.Check(key, n, l.maxKey); err != nil {
			return hybridlimit.Result{}, nil, err
		}
		res, back, err := l.book(ctx, key, n, max(1, int64(most/time.Microsecond)))
		each, burst = back.each, time.Duration(res.Limit)*back.each
		if err != nil || !res.Allowed || res.Shadowed || res.Source == hybridlimit.SourceSwitch {
			return res, nil, err
		}
		return res, func(ctx context.Context) error { return l.giveBack(ctx, key, n, back) }, nil
	})
}

// exceeds returns the error of a cost above the burst.
func exceeds(key string, n, burst int64) error {
	return fmt.Errorf("hybrid: cost %d of key %q: %w (%d)", n, key, hybridlimit.ErrExceedsBurst, burst)
}

// booked describes the units of a reservation for Cancel.
type booked struct {
	op    algo.Op // gives back what Redis granted to this call; Refund 0: the units were in hand
	kept  bool    // the key is in memory, where a refund can wait for Redis
	taken account.Taken
	each  time.Duration // in which one unit comes back; 0: not one by one
}

// book takes n units that will be available within most µs.
func (l *Limiter) book(ctx context.Context, key string, n, most int64) (res hybridlimit.Result, back booked, err error) {
	if res, ok := l.terms.DecidedAbove(key, n); ok {
		l.terms.Denied(key, nil, n, &res)
		return res, back, nil
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return res, back, err
	}
	res = hybridlimit.Result{Limit: at.Plan.Shown, Policy: l.cfg.Name}
	if res, ok := keys.Static(at.Plan, res, n); ok {
		return l.terms.Answer(key, nil, res, n), back, nil
	}
	if n > at.Plan.Most {
		return res, back, exceeds(key, n, at.Plan.Most)
	}
	res, back, err = l.bookAt(ctx, key, at, res, n, most, true)
	if at.Plan.Window.Period == 0 && at.Plan.Kind != algo.KindLog {
		back.each = time.Duration(at.Plan.Undivided().Each()) // of all parts of a split key
	}
	return res, back, err
}

// bookAt is book for a key and its plan. retry: if Redis refuses, and units have come to this process meanwhile, it
// books once more.
func (l *Limiter) bookAt(ctx context.Context, key string, at keys.Place, res hybridlimit.Result, n, most int64, retry bool) (_ hybridlimit.Result, back booked, err error) {
	var e *keys.Entry
	var w *account.Waiter
	var again bool
	if !l.control.Exactly(at.Plan) {
		var v account.Verdict
		if e, v, w, again, err = l.direct.InHand(key, at, n, &back.taken); err != nil {
			return hybridlimit.Result{}, back, err
		}
		back.kept = e != nil
		if v.Source != hybridlimit.SourceUnknown {
			return l.terms.Answer(key, nil, l.terms.Fill(res, at.Plan, v, n), n), back, nil
		}
	}
	inHand := back // the results of this function change when the caller leaves, and the booking goes on
	return l.apart(ctx, func(ctx context.Context) (hybridlimit.Result, booked, error) {
		return l.bookInRedis(ctx, key, at, e, w, again, res, inHand, n, most, retry)
	}, func(ctx context.Context, back booked) { _ = l.takeBack(ctx, key, at, n, back) })
}

// bookInRedis is the part of bookAt that asks Redis. w is as for direct.Asker.Settled.
func (l *Limiter) bookInRedis(
	ctx context.Context, key string, at keys.Place, e *keys.Entry, w *account.Waiter, again bool, res hybridlimit.Result, back booked, n, most int64, retry bool,
) (hybridlimit.Result, booked, error) {
	if e != nil { // Redis must count all units that it does not know of before it books
		if ok, err := l.direct.Settled(ctx, e, w, again); !ok {
			l.direct.Beside(e, n, wire.Answer{})
			if err != nil {
				return hybridlimit.Result{}, back, err
			}
			res, err = l.direct.Fallback(key, at, res, n)
			return res, back, err
		}
	}
	ans, now, ok := l.direct.Within(ctx, at, algo.Op{Asks: []int64{n}, MaxDelay: most}, l.direct.Patience())
	holds := l.direct.Beside(e, n, ans)
	if ok && ans.Granted == 0 && holds && retry {
		return l.bookAt(ctx, key, at, res, n, most, false)
	}
	if !ok {
		if err := direct.Ended(ctx); err != nil {
			return hybridlimit.Result{}, back, err
		}
		res, err := l.direct.Fallback(key, at, res, n)
		return res, back, err
	}
	back.op = at.Plan.Cancel(ans, now)
	back.taken.At, back.taken.Direct = back.op.RefundAt, back.op.Refund > 0
	res = l.terms.Fill(res, at.Plan, direct.Said(at.Plan, ans, n), n)
	res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	return l.terms.Answer(key, nil, res, n), back, nil
}

// giveBack gives back the units that book took.
func (l *Limiter) giveBack(ctx context.Context, key string, n int64, back booked) error {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return err
	}
	if _, ok := l.terms.Uncounted(0); ok && back.op.Refund == 0 {
		return nil
	}
	at, err := l.terms.Place(key)
	if err != nil || account.Static(at.Plan.Limit) {
		return err
	}
	return l.takeBack(ctx, key, at, n, back)
}

// takeBack is giveBack for a key whose place is known. It runs no callback of the user.
func (l *Limiter) takeBack(ctx context.Context, key string, at keys.Place, n int64, back booked) (err error) {
	if back.op.Refund > 0 && !back.kept {
		_, err = l.direct.RefundNow(ctx, key, at, back.op)
		return err
	}
	_, err = l.direct.RefundLater(ctx, key, at, n, back.taken, account.SyncNow)
	return err
}

// Refund gives back n units of key, after a call that cost less than it took. The units first reduce what is still
// owed; the rest goes to Redis with the next sync. The key never holds more than a full key does. Units of a window
// go to the current window: call Refund before the window ends, or use Reservation.Cancel, which knows its window.
// The bound of the package documentation holds for the decisions, not for the units that were given back.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.terms.Uncounted(0); ok {
		return res, nil
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if account.Static(at.Plan.Limit) {
		return hybridlimit.Result{Allowed: true, Limit: at.Plan.Shown, Policy: l.cfg.Name, Source: hybridlimit.SourceStatic}, nil
	}
	return l.direct.RefundLater(ctx, key, at, n, account.Taken{At: direct.OfNow}, account.SyncLazily)
}

// Reset forgets the use of key, in Redis and in this process. Units in hand and units owed are given up and counted
// as such. A sync in flight still counts. For a few seconds more, other processes may deny from memory and
// may spend their leases. A split key costs a message for each part. If one of them fails, call Reset again.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.control.Check(key, 1, l.maxKey); err != nil {
		return err
	}
	at, err := l.terms.Place(key)
	if err != nil || account.Static(at.Plan.Limit) {
		return err
	}
	for _, part := range l.terms.Parts(at) {
		if _, _, ok := l.direct.Within(ctx, part, algo.Op{Reset: true}, l.direct.Patience()); !ok {
			return errors.Join(ctx.Err(), hybridlimit.ErrUnavailable)
		}
	}
	if l.terms.Store.Lookup(key) == nil {
		return nil
	}
	e, _, err := l.terms.LockAt(key, at)
	if e == nil || err != nil {
		return err
	}
	ev := e.Event()
	l.terms.Count.Book(e.Account.Forget())
	ev.End(account.Verdict{})
	return nil
}

// The rest of this file has the bookings whose callers have left. A booking that is on its way to Redis when the
// context of its caller ends may be granted. Its goroutine waits for the answer, and gives the units back. Otherwise
// Redis would keep units that nobody uses, or the process would count units as used that Redis never granted.

// bookings are the bookings of a limiter that are on their way.
type bookings struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newBookings() bookings {
	ctx, cancel := context.WithCancel(context.Background())
	return bookings{ctx: ctx, cancel: cancel}
}

// begin returns false if the limiter is closed.
func (b *bookings) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Add(1)
	}
	return !b.closed
}

// close ends all bookings, and waits for their goroutines.
func (b *bookings) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// apart runs f, which books in Redis and runs no callback of the user but for the logger's. If ctx ends first, apart
// returns its error at once, and undo gives back in the end what f has taken.
func (l *Limiter) apart(
	ctx context.Context, f func(context.Context) (hybridlimit.Result, booked, error), undo func(context.Context, booked),
) (hybridlimit.Result, booked, error) {
	if ctx.Done() == nil || direct.Ended(ctx) != nil || !l.bookings.begin() {
		return f(ctx)
	}
	type answer struct {
		res      hybridlimit.Result
		back     booked
		err      error
		panicked any
	}
	out, left := make(chan answer), make(chan struct{})
	go func() {
		defer l.bookings.wg.Done()
		detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(l.bookings.ctx, cancel)()
		var a answer
		func() {
			defer func() { a.panicked = recover() }()
			a.res, a.back, a.err = f(detached)
		}()
		select {
		case out <- a:
		case <-left:
			if a.panicked == nil && a.err == nil && a.res.Allowed && !a.res.Shadowed {
				undo(detached, a.back)
			}
		}
	}()
	select {
	case a := <-out:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.res, a.back, a.err
	case <-ctx.Done():
		close(left)
		return hybridlimit.Result{}, booked{}, ctx.Err()
	}
}
