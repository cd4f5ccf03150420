package account

// This file is direct calls: one message for one call, outside the sync path. ModeExact, logs and reservations use them.

// DirectBegin takes n units that need not be asked for, or notes that a direct call is about to ask Redis for them: then it
// reports false. Redis is to hear of all that the key owes and gives back before that: see MustSettle.
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

// MustSettle reports whether Redis has still to hear of units of the key, and whether that takes two answers, because a sync
// without some of them is on its way.
func (a *Account) MustSettle() (must, twice bool) {
	return a.owed()+a.back() > 0, a.frozen && a.pending+a.refunds.units() > 0
}

// DirectEnd books the end of a direct call for n units. The view was from before it, and so may be that of a sync on its way.
func (a *Account) DirectEnd(c *Conditions, n, granted int64) {
	a.asking -= n
	a.view.level -= granted * c.Bucket.Unit
	if a.frozen {
		a.aside += granted
	}
}

// Refusal is Redis's denial of a direct call: as many units as these do not exist before then.
type Refusal struct {
	N      int64 // units; 0: there was no refusal
	Until  int64 // ns
	Relook int64 // ns; until when it is believed
	Left   int64 // units that were left
	Reset  int64 // ns; when nothing is used any more
}

// Holds reports whether the refusal denies n units at now.
func (r Refusal) Holds(n, now int64) bool {
	return r.N > 0 && n >= r.N && now < min(r.Until, r.Relook)
}

// Refusal is the last refusal, which may be over.
func (a *Account) Refusal() Refusal { return a.refusal }

// NoteRefusal notes a refusal, unless one of as few units or fewer still holds.
func (a *Account) NoteRefusal(r Refusal, now int64) {
	if was := a.refusal; r.N <= was.N || !was.Holds(was.N, now) {
		a.refusal = r
	}
}

// NoteAbove notes what was left when a cost above the burst was asked for. Where there is a view, or a refusal that holds, these
// say more.
func (a *Account) NoteAbove(r Refusal, now int64) {
	if !a.view.known && !a.refusal.Holds(a.refusal.N, now) {
		a.refusal = r
	}
}

// Accept forgets a refusal: units came back of which it does not know.
func (a *Account) Accept() { a.refusal = Refusal{} }

// KeepDemand takes over the demand that a trial on a copy has seen.
func (a *Account) KeepDemand(trial *Account) { a.demand = trial.demand }
