package hybrid

import (
	"log/slog"
	"math"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

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

// renews asks LimitFor again if that is due, and reports whether it has unlocked the entry for this. Until the answer has come,
// other calls decide by the old limit and do not ask. So a LimitFor that blocks holds up one call for the key in LimitRefresh.
// After a panic of LimitFor, or an answer that is not valid, the key keeps its limit until the next question. Call it under
// e.mu.
func (l *Limiter) renews(e *entry, key string, r *renewal) bool {
	if !l.control.Keyed() || r.e != nil {
		return false
	}
	now := l.hub.clock.Now()
	if !e.asks.Due(now) {
		return false
	}
	e.asks = refresh.Next(l.control.Questions.Every, now).With(e.asks.Note())
	r.e, r.next = e, e.asks
	e.unlock()
	var err error
	if r.at, err = l.place(key); err != nil {
		l.count.BadLimits.Add(1)
		l.hub.log.Event(tell.MsgBadLimit, slog.String("limiter", l.cfg.Name),
			slog.String("key_digest", l.hub.names.Digest(l.cfg.Name, key)), slog.Any("cause", err))
	}
	return true
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
	e.asks = e.lim.control.Questions.Next(at.from)
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
	l := e.lim
	switch {
	case !l.control.Keyed() || e.plan.Load().From == account.FromCall:
		return math.MaxInt64
	case e.asks.Note() != countsUnits:
		return now
	}
	return e.asks.At()
}

// Invalidate makes the next call for key ask Config.LimitFor for its limit, in this process, without waiting for
// Config.LimitRefresh. Call it when a key gets another limit, for example with a message about a customer's new plan.
// The answer changes the limit as SetLimit does: used units stay used. Calls that have begun before may still be
// decided by the old limit. A key that is not in memory needs no Invalidate, and it is no error. Without
// Config.LimitFor nothing happens.
func (l *Limiter) Invalidate(key string) error {
	if err := l.check(key, 1); err != nil {
		return err
	}
	if !l.control.Keyed() {
		return nil
	}
	l.control.Questions.Voids.Add(1) // before the look: a key that comes into memory during it has seen the number
	for _, v := range l.views {
		if e := v.store.peek(key); e != nil {
			e.lock()
			e.begin(l.hub.clock.Now()) // ends the budget
			e.void()
			e.unlock()
		}
	}
	return nil
}

// InvalidateAll is Invalidate for all keys, for example after LimitFor's source was loaded anew. It visits the keys in
// memory (BenchmarkInvalidateAll has the time). A key whose limit has not changed keeps its units.
func (l *Limiter) InvalidateAll() error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	if l.control.Keyed() {
		l.control.VoidLimits()
	}
	return nil
}
