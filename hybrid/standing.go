package hybrid

import (
	"math"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// renewal is a question about the limit of a key in memory. A call asks at most one.
type renewal struct {
	e    *entry           // nil: not asked
	next refresh.Deadline // of e, until there is a newer question
	at   place
}

// answers reports whether there is an answer for the entry, and no newer question. Call it under e.mu.
func (r *renewal) answers(e *entry) bool { return r.e == e && r.at.from.Asked && e.asks == r.next }

// The notes of entry.asks. LimitFor may answer with a limit that counts nothing for a key that has an account. The account keeps
// its plan, and the note stands for the limit.
const (
	countsUnits uint8 = iota
	standsUnlimited
	standsBlocked
)

// standingPlans are the plans that the notes stand for.
var standingPlans = [...]*account.Plan{
	standsUnlimited: account.NewPlan(hybridlimit.Unlimited()), standsBlocked: account.NewPlan(hybridlimit.Blocked()),
}

// standing returns the plan under which calls without a limit are decided. Call it under e.mu.
func (e *entry) standing() *account.Plan {
	if note := e.asks.Note(); note != countsUnits {
		return standingPlans[note]
	}
	return e.plan.Load()
}

// own makes LimitFor's answer the key's own limit, and returns its plan. The caller gives it to the entry if it counts. Call it
// under e.mu.
func (e *entry) own(at place, now int64) *account.Plan {
	e.asks = e.of.control.Questions.Next(at.from)
	switch {
	case !account.Static(at.plan.Limit):
		return e.next(at.plan, now)
	case account.Static(e.plan.Load().Limit): // nothing is owed
		e.plan.Store(at.plan)
	case at.plan.Limit.Algorithm == hybridlimit.AlgUnlimited:
		e.asks = e.asks.With(standsUnlimited)
	default:
		e.asks = e.asks.With(standsBlocked)
	}
	e.begin(now) // ends the budget
	return at.plan
}

// next returns the entry's next plan for an answer of LimitFor. If the limit has changed, the old one counts up to now. A limit
// that replaces that of a call, or that SetLimit has replaced, counts as it always does. Call it under e.mu.
func (e *entry) next(p *account.Plan, now int64) *account.Plan {
	old := e.plan.Load()
	switch {
	case old == p || old.From == account.FromCall:
		return p
	case old.Of == p && old.InForce(now) > 0, old.Limit == p.Limit && old.From == account.FromConfig && p.From == account.FromConfig:
		return old
	case old.Limit == p.Limit || old.From == account.FromLimiter && p.From == account.FromLimiter:
		return p
	}
	turned := *p
	turned.Began = max(1, now)
	if p.From == account.FromLimiter {
		turned.Of = p
	}
	return &turned
}

// adaptBack is adapt to the plan of a call that has waited. If the key has got another limit meanwhile, the next call asks for
// it. Call it under e.mu.
func (e *entry) adaptBack(p *account.Plan, now int64) {
	if e.plan.Load() != p {
		e.void()
	}
	e.adapt(p, now)
}

// evicted is the deadline of an entry that was evicted: look the key up again.
const evicted = -1

// dead reports whether the entry was evicted. Call it under e.mu.
func (e *entry) dead() bool { return e.asks == evicted }

// void makes the next call ask LimitFor. Call it under e.mu.
func (e *entry) void() {
	if !e.dead() {
		e.asks = e.asks.Void()
	}
}

// voidLocked is void, and locks the entry. It does not expand the account.
func (e *entry) voidLocked() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.void()
}

// asksAt returns the time (ns) by which the next call must take the slow path for the sake of LimitFor. A budget may be spent
// for two ticks longer. Call it under e.mu.
func (e *entry) asksAt(now int64) int64 {
	t := e.of
	switch {
	case !t.control.Keyed() || e.plan.Load().From == account.FromCall:
		return math.MaxInt64
	case e.asks.Note() != countsUnits:
		return now
	}
	return e.asks.At()
}
