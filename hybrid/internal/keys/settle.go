package keys

import "github.com/hybridlimit/hybridlimit/internal/account"

// Tells reports whether the entry's view may be news to Redis.
func (e *Entry) Tells(lost int64) bool {
	e.Lock()
	defer e.Unlock()
	return !e.Dead() && e.Account.Tells(e.Plan.Load().Bucket, lost)
}

// Resync marks the view for the next sync if it is not newer than a loss, and reports whether it did.
func (e *Entry) Resync(lost int64) bool {
	e.Lock()
	defer e.Unlock()
	return !e.Dead() && e.Account.Resync(e.Plan.Load().Bucket, lost)
}

// Unsettled returns two sums of the units that Redis has not acknowledged: admitted less given back (owed), and
// admitted plus given back (open). While Redis is asked, open has the leased units that Redis takes back. It also
// reports whether a sync is in flight.
func (e *Entry) Unsettled() (owed, open int64, onItsWay bool) {
	e.Lock()
	defer e.Unlock()
	e.Begin(e.Terms.Clock.Now())
	if open = e.Account.Open(); !e.Terms.Alone(e.Tag()) {
		open += e.Account.MustReturn()
	}
	return e.Account.Owed(), open, e.Account.OnItsWay()
}

// quiet is Freeze while Redis must not be asked. The fallback answers waiting calls. The pause does not count as time
// in which Redis owes an answer.
func (e *Entry) quiet() {
	e.Lock()
	defer e.Unlock()
	if !e.Dead() {
		e.Account.Unstick()
	}
}

// Holds reports whether the entry may hold leased units of a window. An entry with such a lease is never compact.
func (e *Entry) Holds() bool {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	return e.whole != nil && e.Account.Leased() > 0
}

// WantedElsewhere notes that another process was refused units of the key.
func (e *Entry) WantedElsewhere() {
	e.Lock()
	defer e.Unlock()
	if e.Dead() {
		return
	}
	epoch, now := e.Terms.Clock.Stamp()
	c := e.Conditions(e.Plan.Load(), now)
	e.Begin(now)
	e.Account.Want(&c, now)
	e.End(&c, epoch, now)
	e.lookAgain(&c, now)
}

// PaysOff queues the entry's sync if there is something to pay or to return. It reports whether the entry is finished.
func (e *Entry) PaysOff() bool {
	if e.Mu.Lock(); e.OwesNothing() {
		e.Mu.Unlock()
		return true
	}
	e.Mu.Unlock()
	switch _, open, onItsWay := e.Unsettled(); {
	case open > 0:
		e.Sync(account.SyncNow)
		return false
	case onItsWay:
		return e.Terms.Alone(e.Tag())
	}
	return true
}

// Expect adds a waiter for the next answer; it asks for no units. Call it under e.mu, and have the entry synced.
func (e *Entry) Expect() *account.Waiter {
	w := account.NewWaiter(0, e.Plan.Load())
	e.Waiters.Add(w)
	return w
}

// Moment returns a time in the form of algo.Op.RefundAt: the number of the window, or µs of Redis time; 0: not known.
func (e *Entry) Moment(c *account.Conditions, at int64) int64 {
	at = max(0, e.Terms.Clocks.Redis(e.Tag(), at))
	if c.Window.Period > 0 {
		return c.Window.Number(at)
	}
	return at
}

// WriteOff counts the units that the entry owed and held, and forgets it: its limiter is closed.
func (e *Entry) WriteOff(now int64) {
	e.Mu.Lock()
	if e.Dead() || e.dieEmpty() {
		e.Mu.Unlock()
		return
	}
	e.wake()
	defer e.Unlock()
	e.Begin(now)
	e.die()
	e.Terms.Count.Book(e.Account.Forget())
}

// TakeBack takes back the budget, so that the decisions made from it are counted.
func (e *Entry) TakeBack(now int64) {
	e.Lock()
	e.Begin(now)
	e.Unlock()
}

// Left returns the estimate of the units left of a key in memory; 0 if it is not there.
func (t *Terms) Left(key string) int64 {
	e := t.Store.Peek(key)
	if e == nil {
		return 0
	}
	e.Lock()
	defer e.Unlock()
	now := t.Clock.Now()
	c := e.Conditions(e.Plan.Load(), now)
	return e.Account.Remaining(&c, now)
}

// Reread makes the process return the units of a key that it holds, and so read its state again, which has changed.
func (t *Terms) Reread(key string) {
	e := t.Store.Get(key)
	if e == nil {
		return
	}
	e.Lock()
	defer e.Sync(account.SyncNow) // without the lock
	defer e.Unlock()
	if !e.Dead() {
		e.Begin(t.Clock.Now())
		e.Account.Return()
	}
}
