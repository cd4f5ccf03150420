package direct

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// InHand takes n units that this process has in hand, and notes the time in taken. If there are too few, it notes that
// a direct call is about to ask for them, and v.Source is SourceUnknown. If Redis does not know of all units that were
// admitted or given back, w waits for the next answer. twice reports whether w needs the answer after that too, because
// a sync without these units is in flight.
func (a *Asker) InHand(key string, at keys.Place, n int64, taken *account.Taken) (e *keys.Entry, v account.Verdict, w *account.Waiter, twice bool, err error) {
	e, _, err = a.terms.LockAt(key, at)
	if e == nil || err != nil {
		return nil, account.Verdict{}, nil, false, err
	}
	ev := e.Event()
	v, decided := e.Account.DirectBegin(&ev.Conditions, n, ev.Now)
	*taken = account.Taken{At: e.Moment(&ev.Conditions, ev.Now+v.Delay), Ns: ev.Now}
	if v.Window > 0 { // on credit
		taken.At = v.Window
	}
	if !decided {
		var must bool
		if must, twice = e.Account.MustSettle(); must {
			w, v.Sync = e.Expect(), account.SyncNow
		}
	}
	return e, ev.End(v), w, twice, nil
}

// Settled waits until Redis knows of all units that were admitted or given back before w. It returns false if Redis
// does not know of them in time.
func (a *Asker) Settled(ctx context.Context, e *keys.Entry, w *account.Waiter, twice bool) (bool, error) {
	for w != nil {
		if v, err := a.terms.Wait(ctx, e, w, a.terms.Clock.Now(), a.Patience()); err != nil || v.Source != hybridlimit.SourceRedis {
			return false, err
		}
		if w = nil; twice {
			twice = false
			e.Lock()
			if e.Dead() {
				e.Unlock()
				return false, nil
			}
			ev := e.Event()
			w = e.Expect()
			ev.End(account.Verdict{Sync: account.SyncNow})
		}
	}
	return true, nil
}

// Beside tells the account of an entry that a direct call for n units has ended. It reports whether the process may
// hold units of the key.
func (a *Asker) Beside(e *keys.Entry, n int64, ans wire.Answer) (holds bool) {
	if e == nil {
		return false
	}
	e.Lock()
	if e.Dead() {
		e.Unlock()
		return false
	}
	ev := e.Event()
	e.Account.DirectEnd(&ev.Conditions, n, ans.Granted)
	holds = e.Account.MayHold()
	ev.End(account.Verdict{})
	return holds
}

// OfNow stands for the current window. For a bucket it stands for no time.
const OfNow = -1

// RefundLater gives back n units with a sync, or at once if there is no memory for the key. Units that Redis does not
// know of are given back in memory only.
func (a *Asker) RefundLater(ctx context.Context, key string, at keys.Place, n int64, taken account.Taken, soon account.Sync) (hybridlimit.Result, error) {
	var e *keys.Entry
	if !a.terms.Control.Exactly(at.Plan) {
		var err error
		if e, _, err = a.terms.LockAt(key, at); err != nil {
			return hybridlimit.Result{}, err
		}
	}
	if e == nil {
		return a.RefundNow(ctx, key, at, algo.Op{Refund: n, RefundAt: max(0, taken.At)})
	}
	ev := e.Event()
	if taken.At == OfNow {
		if taken.At = 0; ev.Conditions.Window.Period > 0 {
			taken.At = e.Moment(&ev.Conditions, ev.Now)
		}
	}
	next, books := e.Account.Refund(&ev.Conditions, n, taken, soon)
	a.terms.Count.Book(books)
	v := ev.End(account.Verdict{Sync: next})
	res := hybridlimit.Result{Allowed: true, Limit: at.Plan.Shown, Policy: a.terms.Name}
	res.Source, res.Remaining = hybridlimit.SourceCredit, keys.Remaining(v)
	res.ResetAfter = a.terms.ResetAfter(at.Plan, v.Left, v.Ends)
	return res, nil
}

// RefundNow gives units back with a message of its own, which is sent once.
func (a *Asker) RefundNow(ctx context.Context, key string, at keys.Place, op algo.Op) (hybridlimit.Result, error) {
	ans, _, ok := a.Within(ctx, at, op, a.Patience())
	if !ok {
		return hybridlimit.Result{}, errors.Join(ctx.Err(), hybridlimit.ErrUnavailable)
	}
	a.Accept(key)
	a.terms.Count.Returned.Add(op.Refund)
	a.terms.Count.Refunded.Add(op.Refund)
	return hybridlimit.Result{
		Allowed: true, Limit: at.Plan.Shown, Policy: a.terms.Name, Source: hybridlimit.SourceRedis,
		Remaining:  at.Plan.Units(ans.Level),
		ResetAfter: time.Duration(at.Plan.Reset(ans)) * time.Microsecond,
	}, nil
}
