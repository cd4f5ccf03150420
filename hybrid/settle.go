package hybrid

import "github.com/hybridlimit/hybridlimit/internal/account"

// tells reports whether the entry's view may be news to Redis.
func (e *entry) tells(lost int64) bool {
	e.lock()
	defer e.unlock()
	return !e.dead() && e.account.Tells(e.plan.Load().Bucket, lost)
}

// again marks the view for the next sync if it is not newer than a loss, and reports whether it did.
func (e *entry) again(lost int64) bool {
	e.lock()
	defer e.unlock()
	return !e.dead() && e.account.Resync(e.plan.Load().Bucket, lost)
}

// unsettled returns two sums of the units that Redis has not acknowledged: admitted less given back (owed), and admitted plus given
// back (open). While Redis is asked, open has the leased units that Redis takes back. It also reports whether a sync is in flight.
func (e *entry) unsettled() (owed, open int64, onItsWay bool) {
	e.lock()
	defer e.unlock()
	e.begin(e.of.clock.Now())
	if open = e.account.Open(); !e.of.alone(e.tag()) {
		open += e.account.MustReturn()
	}
	return e.account.Owed(), open, e.account.OnItsWay()
}

// quiet is Freeze while Redis must not be asked. The fallback answers waiting calls. The pause does not count as time in
// which Redis owes an answer.
func (e *entry) quiet() {
	e.lock()
	defer e.unlock()
	if !e.dead() {
		e.account.Unstick()
	}
}

// holds reports whether the entry may hold leased units of a window. An entry with such a lease is never compact.
func (e *entry) holds() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.whole != nil && e.account.Leased() > 0
}

// wantedElsewhere notes that another process was refused units of the key.
func (e *entry) wantedElsewhere() {
	e.lock()
	defer e.unlock()
	if e.dead() {
		return
	}
	epoch, now := e.of.clock.Stamp()
	c := e.conditions(e.plan.Load(), now)
	e.begin(now)
	e.account.Want(&c, now)
	e.end(&c, epoch, now)
	e.lookAgain(&c, now)
}

// paysOff queues the entry's sync if there is something to pay or to return. It reports whether the entry is finished.
func (e *entry) paysOff() bool {
	if e.mu.Lock(); e.owesNothing() {
		e.mu.Unlock()
		return true
	}
	e.mu.Unlock()
	switch _, open, onItsWay := e.unsettled(); {
	case open > 0:
		e.sync(account.SyncNow)
		return false
	case onItsWay:
		return e.of.alone(e.tag())
	}
	return true
}
