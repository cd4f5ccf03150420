package keys

import (
	"math"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// renewal is a question about the limit of a key in memory. A call asks at most one.
type renewal struct {
	e    *Entry           // nil: not asked
	next refresh.Deadline // of e, until there is a newer question
	at   Place
}

// answers reports whether there is an answer for the entry, and no newer question. Call it under e.mu.
func (r *renewal) answers(e *Entry) bool { return r.e == e && r.at.from.Asked && e.Asks == r.next }

// The notes of Entry.Asks. LimitFor may answer with a limit that counts nothing for a key that has an account. The
// account keeps its plan, and the note stands for the limit.
const (
	countsUnits uint8 = iota
	StandsUnlimited
	StandsBlocked
)

// standingPlans are the plans that the notes stand for.
var standingPlans = [...]*account.Plan{
	StandsUnlimited: account.NewPlan(hybridlimit.Unlimited()), StandsBlocked: account.NewPlan(hybridlimit.Blocked()),
}

// Standing returns the plan under which calls without a limit are decided. Call it under e.mu.
func (e *Entry) Standing() *account.Plan {
	if note := e.Asks.Note(); note != countsUnits {
		return standingPlans[note]
	}
	return e.Plan.Load()
}

// own makes LimitFor's answer the key's own limit, and returns its plan. The caller gives it to the entry if it counts.
// Call it under e.mu.
func (e *Entry) own(at Place, now int64) *account.Plan {
	e.Asks = e.Terms.Control.Questions.Next(at.from)
	switch {
	case !account.Static(at.Plan.Limit):
		return e.next(at.Plan, now)
	case account.Static(e.Plan.Load().Limit): // nothing is owed
		e.Plan.Store(at.Plan)
	case at.Plan.Limit.Algorithm == hybridlimit.AlgUnlimited:
		e.Asks = e.Asks.With(StandsUnlimited)
	default:
		e.Asks = e.Asks.With(StandsBlocked)
	}
	e.Begin(now) // ends the budget
	return at.Plan
}

// next returns the entry's next plan for an answer of LimitFor. If the limit has changed, the old one counts up to now.
// A limit that replaces that of a call, or that SetLimit has replaced, counts as it always does. Call it under e.mu.
func (e *Entry) next(p *account.Plan, now int64) *account.Plan {
	old := e.Plan.Load()
	switch {
	case old == p || old.From == account.FromCall:
		return p
	case p.Part.Of > 1 && old.From == p.From && old.Of != nil && old.Of == p.Of: // the plan of a part, made once more
		return old
	case old.Of == p && old.InForce(now) > 0, old.Limit == p.Limit && old.From == account.FromConfig && p.From == account.FromConfig:
		return old
	case old.Limit == p.Limit || old.From == account.FromLimiter && p.From == account.FromLimiter:
		return p
	}
	turned := *p
	turned.Began = max(1, now)
	if p.From == account.FromLimiter && p.Of == nil {
		turned.Of = p
	}
	return &turned
}

// AdaptBack is adapt to the plan of a call that has waited. If the key has got another limit meanwhile, the next call
// asks for it. Call it under e.mu.
func (e *Entry) AdaptBack(p *account.Plan, now int64) {
	if e.Plan.Load() != p {
		e.Void()
	}
	e.adapt(p, now)
}

// Evicted is the deadline of an entry that was evicted: look the key up again.
const Evicted = -1

// Dead reports whether the entry was evicted. Call it under e.mu.
func (e *Entry) Dead() bool { return e.Asks == Evicted }

// Void makes the next call ask LimitFor. Call it under e.mu.
func (e *Entry) Void() {
	if !e.Dead() {
		e.Asks = e.Asks.Void()
	}
}

// VoidLocked is void, and locks the entry. It does not expand the account.
func (e *Entry) VoidLocked() {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Void()
}

// asksAt returns the time (ns) by which the next call must take the slow path for the sake of LimitFor. A budget may be
// spent for two ticks longer. Call it under e.mu.
func (e *Entry) asksAt(now int64) int64 {
	t := e.Terms
	switch {
	case !t.Control.Keyed() || e.Plan.Load().From == account.FromCall:
		return math.MaxInt64
	case e.Asks.Note() != countsUnits:
		return now
	}
	return e.Asks.At()
}
