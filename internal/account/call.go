package account

import "github.com/hybridlimit/hybridlimit"

// Call decides a call for n units. Only Call and judge define the order of a decision: AllowAll tries Call on a copy,
// and Inspect explains Call on a copy.
//
// If the action is Ask, the caller waits for Redis: the shell adds the call to the Waiters.
func (a *Account) Call(c *Conditions, n, now int64) Verdict {
	if c.Broken {
		return a.locally(c, n, now, RedisAway)
	}
	a.demand.note(n, now)
	v := a.judge(c, n, now)
	if v.Action != Ask {
		return v
	}
	why := None
	switch {
	case c.MaxWait < 0:
		why = NeverWaits
	case a.stuckAt != 0 && now-a.stuckAt > c.MaxWait: // a caller has waited in vain; no other one has to
		why = WaitedLong
	default:
		return v
	}
	asks := v.Asks
	v = a.without(c, n, now, why)
	v.Asks, v.Sync = asks, SyncNow // Redis must still be asked
	return v
}

// Again decides a call that Call has counted in the demand. Unlike Call, it lets the call wait for Redis.
func (a *Account) Again(c *Conditions, n, now int64) Verdict {
	if c.Broken {
		return a.locally(c, n, now, RedisAway)
	}
	return a.judge(c, n, now)
}

// judge decides a call while Redis is not away.
func (a *Account) judge(c *Conditions, n, now int64) Verdict {
	if a.AtOnce(n) >= n {
		return a.fromLease(c, n, now)
	}
	if until := a.ProvedUntil(c, n); now < min(until, a.view.relook) {
		return Verdict{Action: Deny, Source: hybridlimit.SourceDenyCache, Reason: Proved, Retry: a.RetryAt(c, n) - now}
	}
	if next := a.nextPollFor(c, n); now < next {
		return Verdict{Action: Deny, Source: hybridlimit.SourceDenyCache, Reason: NotYet, Retry: next - now}
	}
	left, why := a.credit(c, now)
	if left >= n {
		return a.onCredit(c, n, now)
	}
	if a.stuckAt == 0 {
		a.stuckAt = now
	}
	if why == None {
		why = MoreThanThere
	}
	return Verdict{Action: Ask, Reason: WaitsForRedis, Asks: why, Sync: SyncNow}
}

func (a *Account) fromLease(c *Conditions, n, now int64) Verdict {
	v := a.hand(n, now)
	if a.worthLease(c, now) {
		v.Sync = SyncNow
	}
	return v
}

func (a *Account) onCredit(c *Conditions, n, now int64) Verdict {
	v := Verdict{Action: Admit, Source: hybridlimit.SourceCredit, Reason: OnCredit, Sync: SyncLazily}
	if !a.view.known() {
		v.Reason = OnBlindCredit
	}
	window := a.view.window
	v.Window = window
	if !a.fresh(now) { // charged units and blind credit need no view.
		window, v.Window = c.present(), c.Last
	}
	a.owe(n, window)
	if a.pending >= a.flushAt(c, now) {
		v.Sync = SyncNow
	}
	return v
}

// TimedOut decides a call for n units that has waited for Redis for MaxWait. Its Waiter has left before.
func (a *Account) TimedOut(c *Conditions, n, now int64) Verdict {
	return a.without(c, n, now, WaitTimeout)
}

// without decides a call that Redis did not answer in time. While the breaker is closed, ModeStrict denies, because the
// answer of Redis counts.
func (a *Account) without(c *Conditions, n, now int64, why Reason) Verdict {
	if c.Mode == ModeStrict && !c.Broken {
		return Verdict{
			Action: Deny, Source: hybridlimit.SourceTimeout, Reason: StrictDenies, Without: why, Retry: max(c.RTT, c.Tick),
		}
	}
	return a.locally(c, n, now, why)
}

// AtMost takes up to n units without asking Redis: held units, or else units on credit. If it takes none, took is 0.
// The action is then Ask if Redis may be asked for a part of n at once: for a queue, when Redis need not hear of units
// before.
func (a *Account) AtMost(c *Conditions, n, now int64) (took int64, v Verdict) {
	if took = a.AtOnce(n); took > 0 {
		a.demand.note(took, now)
		return took, a.fromLease(c, took, now)
	}
	if c.Broken || now < a.DeniedUntil(c) {
		return 0, Verdict{Action: Deny}
	}
	if took = min(a.CreditLeft(c, now), n); took > 0 {
		a.demand.note(took, now)
		return took, a.onCredit(c, took, now)
	}
	if c.Bucket.Queue && a.owed() == 0 && a.refunds.units() == 0 {
		return 0, Verdict{Action: Ask}
	}
	return 0, Verdict{Action: Deny}
}

// MaxCharge is the largest number of charged units in one sync. It leaves room for other owed units: Lua counts to 2⁵³.
const MaxCharge = 1 << 52

// Charge books n units that were used without asking: first as held units, then as owed. It returns the number of units
// that count. Units above MaxCharge would change nothing, because no debt is larger than the burst. Without Redis the share
// pays too: the calls after it are decided there.
func (a *Account) Charge(c *Conditions, n, now int64) (v Verdict, counted int64) {
	a.demand.note(min(n, MaxCharge), now)
	paid := min(a.Held(), n)
	a.use(paid, now)
	owed := max(0, min(n-paid, MaxCharge-a.pending))
	if c.Broken && c.Fallback.Counts() {
		a.StartFallback(c, now)
		c.Fallback.Share.Debit(c.Fallback.Size, n-paid, now)
	}
	return a.onCredit(c, owed, now), paid + owed
}

// Forecast is the likely answer to a call for one unit.
type Forecast struct {
	Known   bool               // there is a view
	Stale   bool               // the view has no units, and may be too old to prove that: a call would ask Redis
	Owed    int64              // if it is stale: units that Redis does not know of
	Allowed bool               // the call would be admitted
	Source  hybridlimit.Source // of the decision
	Delay   int64              // ns, of a queue
	Until   int64              // ns from now to the end of a denial
	Left    int64              // units of the share, if the fallback decides
}

// Peek estimates the answer to a call for one unit and takes nothing.
func (a *Account) Peek(c *Conditions, now int64) (f Forecast) {
	f.Known = a.view.known()
	switch {
	case a.Held() > 0:
		f.Allowed, f.Source = true, hybridlimit.SourceLease
		f.Delay = max(0, a.leases[0].next-now)
	case c.Broken:
		f = a.Alone(c, now)
		f.Known = a.view.known()
	default:
		f.Until = a.DeniedUntil(c) - now
		f.Source = hybridlimit.SourceCredit
		f.Stale = f.Known && f.Until <= 0 && a.Remaining(c, now) < 1 && a.CreditLeft(c, now) < 1
		f.Owed = a.Owed()
		if f.Allowed = f.Until <= 0 && !f.Stale; !f.Allowed {
			f.Source = hybridlimit.SourceDenyCache
			f.Until = max(f.Until, a.RetryAt(c, 1)-now)
		} else if c.Bucket.Queue && f.Known {
			f.Delay = c.Bucket.WaitFull(a.level(c, now)) * 1000
		}
	}
	return f
}

// StillNone notes that Redis has no units of the key, so that calls are denied for as long as after a refusal.
func (a *Account) StillNone(c *Conditions, now int64) {
	if a.view.known() {
		a.view.relook = max(a.view.relook, now+c.RelookIn)
	}
}

// A direct call is one message for one call, outside the sync path. ModeExact, logs and reservations use them.

// DirectBegin decides a call for n units if that does not need Redis. Otherwise it notes that a direct call will ask
// Redis for them, and decided is false. See MustSettle for what Redis must be told before that call.
func (a *Account) DirectBegin(c *Conditions, n, now int64) (v Verdict, decided bool) {
	switch {
	case a.AtOnce(n) >= n:
		a.demand.note(n, now)
		return a.hand(n, now), true
	case c.Broken:
		return a.locally(c, n, now, RedisAway), true
	case a.CreditLeft(c, now) >= n:
		a.demand.note(n, now)
		v = a.onCredit(c, n, now)
		v.Sync = SyncLazily
		return v, true
	}
	a.asking += n
	return Verdict{}, false
}

// MustSettle reports whether Redis must still be told of units of the key, or get leased units back. twice reports
// whether that takes two answers, because a sync without some of these units is in flight. Leased units go back before
// a booking: otherwise they could be used at its time, beside a whole burst that is booked. Redis may also lack them
// for the booking.
func (a *Account) MustSettle() (must, twice bool) {
	must = a.leasing || a.owed()+a.back()+a.MustReturn()-a.ahead.units > 0
	return must, a.leasing || a.frozen && a.pending+a.earlier.units+a.refunds.units()+a.returnable() > 0
}

// DirectEnd books the end of a direct call for n units. The granted units are subtracted from the view, which is older
// than the call. The answer to a sync in flight may also be older.
func (a *Account) DirectEnd(c *Conditions, n, granted int64) {
	a.asking -= n
	a.view.level -= granted * c.Bucket.Unit
	if a.frozen {
		a.aside += granted
	}
}
