package account

// Observed is the use of a limit by the count of another party, such as the provider that the fleet calls.
type Observed struct {
	Used  int64 // units of the burst; 0: not known
	Until int64 // ns; from then on they are too old to be told
	By    int64 // Until in µs of Redis time, as algo.Op.UsedBy; 0: not known
}

// Observe notes an observation for the next sync, unless Redis knows of as much use by the view. It lowers the view. If
// fewer units are left than are held, all leased units go back, so that one place has them. news reports whether the
// next sync tells it.
func (a *Account) Observe(c *Conditions, o Observed, now int64) (next Sync, news bool) {
	burst := c.Limit.BurstSize()
	if c.windowed() {
		o.Used = min(o.Used, burst)
	}
	if o.Used <= 0 || o.Until <= now {
		return SyncNot, false
	}
	if over := a.over(c, o.Used, now); over > 0 {
		a.lower(over, c.Bucket.Unit)
	} else if a.fresh(now) {
		return SyncNot, false
	}
	if a.observed.Until <= now || o.Used >= a.observed.Used {
		a.observed = o
	}
	if a.Held() > max(0, burst-o.Used) {
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
	if !c.windowed() && now-a.view.received < ledgerMemory {
		rest = a.view.cap - used*c.Bucket.Unit
	}
	return max(0, a.level(c, now)-a.owed()*c.Bucket.Unit-rest) / c.Bucket.Unit
}

// lower lowers the view. The view that Redis gets back is not lowered: it restores a lost state, and would outlive the
// observation.
func (a *Account) lower(units, unit int64) {
	a.view.level -= units * unit
	a.lowered += units
}

// forgetUse forgets the observations that Redis has not been told of.
func (a *Account) forgetUse(unit int64) {
	a.lower(-a.lowered, unit)
	a.observed = Observed{}
}

// tellsUse reports whether the next sync tells an observation. It forgets one that is too old.
func (a *Account) tellsUse(c *Conditions, now int64) bool {
	if a.observed.Used > 0 && a.observed.Until <= now {
		a.forgetUse(c.Bucket.Unit)
	}
	return a.observed.Used > 0
}
