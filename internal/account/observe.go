package account

// Observed is the use of a limit by the count of another party, such as the provider that the fleet calls.
type Observed struct {
	Used  int64 // units of the burst; 0: not known
	Until int64 // ns; from then on they are too old to be told
	By    int64 // Until in µs of Redis time, as algo.Op.UsedBy; 0: not known
}

// Observe notes an observation for the next sync, unless Redis knows of as much use by the view. It lowers the view. If
// fewer units are left than a fleet holds of which each process holds as many, all leased units go back, so that one
// place has them. news reports whether the
// next sync tells it.
func (a *Account) Observe(c *Conditions, o Observed, now int64) (next Sync, news bool) {
	burst := c.Limit.BurstSize()
	if !c.hasLedger() { // there is no debt
		o.Used = min(o.Used, burst)
	}
	if o.Used <= 0 || o.Until <= now {
		return SyncNot, false
	}
	if !a.lower(c, o.Used, now) && a.fresh(now) {
		return SyncNot, false
	}
	if a.observed.Until <= now || o.Used >= a.observed.Used {
		a.observed = o
	}
	if max(1, c.N)*a.Held() > max(0, burst-o.Used) {
		a.Return()
		return SyncNow, true
	}
	return SyncLazily, true
}

// over returns the whole units by which the level is too high by the view, of which another party has counted used
// units: as algo does, but without the units that are owed.
func (a *Account) over(c *Conditions, used, now int64) int64 {
	if !a.fresh(now) {
		return 0
	}
	rest := c.Bucket.Cap - used*c.Bucket.Unit
	switch {
	case !c.hasLedger():
		rest -= a.Held() * c.Bucket.Unit
	case now-a.view.received < a.view.ledgerMemory():
		rest = a.view.cap - used*c.Bucket.Unit
	}
	return max(0, a.level(c, now)-a.owed()*c.Bucket.Unit-rest) / c.Bucket.Unit
}

// lower lowers the view for used units, and reports whether it did. The view that Redis gets back is not lowered: it
// restores a lost state, and would outlive the observation.
func (a *Account) lower(c *Conditions, used, now int64) bool {
	units := a.over(c, used, now)
	if units == 0 {
		return false
	}
	was, passed := a.view.level, (now-a.view.received)/1000
	switch {
	case c.windowed():
		a.view.level -= units * c.Bucket.Unit
	case passed > exactLevel/c.Bucket.Refill: // too long for an exact level
		a.view, a.used, a.lowered = view{}, true, 0
		return true
	default: // the refill since may have filled the bucket
		a.view.level = a.level(c, now) - units*c.Bucket.Unit - passed*c.Bucket.Refill
	}
	a.lowered += was - a.view.level
	return true
}

// lowerAgain lowers a new view, which does not know of the observation that waits for the next sync.
func (a *Account) lowerAgain(c *Conditions, now int64) {
	if a.observed.Used > 0 && now < a.observed.Until {
		a.lower(c, a.observed.Used, now)
	}
}

// forgetUse forgets the observations that Redis has not been told of.
func (a *Account) forgetUse() {
	a.view.level += a.lowered
	a.observed, a.lowered = Observed{}, 0
}

// takeUse takes the observation for an op, after the leased units that go back with it. Those that stay may be used
// yet: Redis takes off those in its ledger.
func (a *Account) takeUse(c *Conditions) (used, by int64) {
	o := a.observed
	if a.observed = (Observed{}); o.Used > 0 && !c.hasLedger() {
		o.Used = min(o.Used+a.Held(), c.Limit.BurstSize())
	}
	return o.Used, o.By
}

// tellsUse reports whether the next sync tells an observation. It forgets one that is too old.
func (a *Account) tellsUse(now int64) bool {
	if a.observed.Used > 0 && a.observed.Until <= now {
		a.forgetUse()
	}
	return a.observed.Used > 0
}
