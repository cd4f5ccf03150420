package account

import "github.com/hybridlimit/hybridlimit/internal/algo"

// This file has the direct calls: one message for one call, outside the sync path. ModeExact, logs and reservations use
// them.

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
	return must, a.leasing || a.frozen && a.pending+a.refunds.units()+a.returnable() > 0
}

// MayHold reports whether units are in hand, or on their way to it. If Redis refused a direct call, these units may be
// the missing ones: a sync of another call can lease them between DirectBegin and the direct call.
func (a *Account) MayHold() bool { return a.leasing || a.Held() > 0 }

// DirectEnd books the end of a direct call for n units. The granted units are subtracted from the view, which is older
// than the call. The answer to a sync in flight may also be older.
func (a *Account) DirectEnd(c *Conditions, n, granted int64) {
	a.asking -= n
	a.view.level -= granted * c.Bucket.Unit
	if a.frozen {
		a.aside += granted
	}
}

// Told returns the view as Redis gets it back with a direct call. A state that Redis has lost is restored from it.
func (a *Account) Told(c *Conditions) (v algo.View) {
	if a.view.known() {
		v = a.told(c)
	}
	return v
}

// DirectSeen takes over the view in the answer to a direct call of ModeExact or of a log. A fallback begins with it. A
// sync in flight will bring a view too.
func (a *Account) DirectSeen(c *Conditions, ans Answer, now int64) {
	if !a.frozen {
		a.see(c, ans, now)
	}
}

// Refusal is Redis's last answer to a direct call of a log: N units do not exist before Until.
type Refusal struct {
	N      int64 // units; 0: there was no answer; noRefusal: the call was granted
	Until  int64 // ns
	Relook int64 // ns; the time until which the refusal may be used
	Left   int64 // units that were left
	Reset  int64 // ns; the time at which the key is unused again
}

// Holds reports whether the refusal denies n units at now.
func (r Refusal) Holds(n, now int64) bool {
	return r.N > 0 && n >= r.N && now < min(r.Until, r.Relook)
}

// noRefusal is the N of a Refusal that denies nothing.
const noRefusal = 1<<63 - 1

// NoteLeft notes that left units were left, and that the key is unused again at reset (ns). A refusal still holds.
func (a *Account) NoteLeft(left, reset int64) {
	if a.refusal.N == 0 {
		a.refusal.N = noRefusal
	}
	a.refusal.Left, a.refusal.Reset = left, reset
}

// Refusal returns the last refusal. It may be over.
func (a *Account) Refusal() Refusal { return a.refusal }

// NoteRefusal notes a refusal, unless a refusal of fewer units still holds.
func (a *Account) NoteRefusal(r Refusal, now int64) {
	if was := a.refusal; r.N <= was.N || !was.Holds(was.N, now) {
		a.refusal = r
	}
}

// NoteAbove notes the units that were left when a call asked for more than the burst. It does nothing if there is a
// view or a refusal that holds, because these say more.
func (a *Account) NoteAbove(r Refusal, now int64) {
	if !a.view.known() && !a.refusal.Holds(a.refusal.N, now) {
		a.refusal = r
	}
}

// Accept forgets the refusal, because units came back that it does not include.
func (a *Account) Accept() { a.refusal = Refusal{} }

// KeepDemand takes over the demand of a copy on which a call was tried.
func (a *Account) KeepDemand(trial *Account) { a.demand = trial.demand }
