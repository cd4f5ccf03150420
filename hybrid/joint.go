package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

var (
	_ adapter.Joint     = (*Limiter)(nil)
	_ adapter.Describer = (*Limiter)(nil)
)

// Joins reports whether AllowJoint can decide the other limiter together with this one. It can if both belong to the
// same hub.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil && o.hub == l.hub
}

// AllowJoint decides one call under several limits (per user, per address, for all), all or nothing.
// [hybridlimit.AllowAll] calls it. If one limit denies, no units are taken from the others. Like AllowN it is local
// work: it tries all limits under the locks of the keys, and takes units only if all admit. Two limits with units in
// hand cost about four calls of Allow (BenchmarkAllowAll). Up to four such limits allocate nothing, and neither does
// their denial from memory if each asks for one unit. The slow path decides all other calls. If this process has no
// units of a key in hand, it asks Redis first, without holding a lock. If another limit then denies, the units that
// Redis gave for this call are lost, and counted as lost.
//
// ModeExact and logs have no units in hand. Redis is asked for these last, when all other limits admit, with one
// message each. If the call is denied in the end, their units are given back.
//
// If several limits deny, the result is that of the one with the longest RetryAfter. If all admit, it is that of the
// one with the fewest units remaining. Policy names that limit. Delay is the longest of all queues. Shadowed reports
// whether any shadow limit would have denied the call. Only the limit whose denial is the result counts a denial. Asks
// for one key of one limiter add up. AllowJoint writes the answer of each limit into its ask.
//
// The error is ErrInvalid if there are no asks, or if a Limiter is nil (as an
// interface, or a nil pointer in one) or does not join. No units are taken then.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	if res, ok := l.hub.allCommon(asks); ok {
		return res, nil
	}
	all := make([]joint, len(asks))
	for i := range asks {
		asks[i].Result, asks[i].Taken = hybridlimit.Result{}, hybridlimit.Taken{}
	}
	for i, a := range asks {
		if !l.Joins(a.Limiter) {
			return hybridlimit.Result{}, l.stranger(i, a.Limiter)
		}
		all[i] = joint{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return l.hub.allowJoint(ctx, all, asks)
}

// stranger returns the error for an ask whose limiter does not join l.
func (l *Limiter) stranger(ask int, of hybridlimit.Limiter) error {
	own, ok := of.(*Limiter)
	switch {
	case of == nil || ok && own == nil:
		return badLimiter(ask, nil, "must not be nil")
	case ok:
		return badLimiter(ask, own.cfg.Name, fmt.Sprintf("must have the same hub as the limiter %q of the same call", l.cfg.Name))
	}
	return badLimiter(ask, fmt.Sprintf("%T", of), fmt.Sprintf("must be a limiter of package hybrid with the same hub as the limiter %q", l.cfg.Name))
}

func badLimiter(ask int, value any, problem string) error {
	var bad adapter.Violations
	bad.Add(fmt.Sprintf("asks[%d].Limiter", ask), value, problem)
	return bad.Err("hybrid: AllowAll")
}

// check rejects invalid asks before anything is counted.
func check(asks []joint) error {
	for i, a := range asks {
		err := a.Limiter.control.Check(a.Key, a.N, a.Limiter.maxKey)
		if errors.Is(err, hybridlimit.ErrClosed) {
			return err
		}
		if err != nil {
			return fmt.Errorf("hybrid: AllowAll: asks[%d]: %w", i, err)
		}
	}
	return nil
}

// Policy returns the limit that is enforced on key, for a class without its floor. Shadow follows the switch: it
// reports whether the limiter denies no call now. SwitchAllowAll and
// SwitchDenyAll do not change the Policy; only Result.Source shows them.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit, _ := l.control.LimitFor(key)
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: l.control.OfClass(limit), Shadow: l.control.Shadow.Load()}
}

// The rest of this file has the fast path of AllowJoint: the words of all keys decide. Either all limits admit the
// call, each from its budget, or the budgets of some deny it.

// maxCommon is the largest number of limits that the fast path decides together.
const maxCommon = 4

// commonPart is one limit of the fast path.
type commonPart struct {
	ask  *hybridlimit.Ask
	e    *keys.Entry
	plan *account.Plan
	kind account.BudgetKind // of the word
}

// allCommon decides asks if the words of all keys can. Otherwise it returns false, and has taken nothing. It locks the
// entries in the order of allowJoint, but it does not expand their accounts. While an entry is locked, its word is
// neither taken back nor loaded. So units that were spent from it can be put back: only other calls of the fast path
// change it meanwhile.
func (h *Hub) allCommon(asks []hybridlimit.Ask) (res hybridlimit.Result, ok bool) {
	if len(asks) == 0 || len(asks) > maxCommon {
		return res, false
	}
	var all [maxCommon]commonPart
	parts, denies := all[:len(asks)], false
	for i := range asks {
		at := i
		p := commonPart{ask: &asks[i]}
		if !p.find(h) {
			return res, false
		}
		denies = denies || p.kind == account.DenyBudget
		for ; at > 0 && lockOrder(p.e.Terms, p.ask.Key, parts[at-1].e.Terms, parts[at-1].ask.Key) < 0; at-- {
			parts[at] = parts[at-1]
		}
		if parts[at] = p; at > 0 && parts[at-1].e == p.e { // the units of one key must be added up
			return res, false
		}
	}
	if denies {
		return denyAll(parts)
	}
	for i := range parts {
		parts[i].e.Hold()
	}
	if ok = spendAll(parts); ok {
		for i := range parts {
			parts[i].take()
			if one := &parts[i].ask.Result; i == 0 || one.Remaining < res.Remaining {
				res = *one
			}
		}
	}
	for i := range parts {
		parts[i].e.Release()
	}
	return res, ok
}

// find looks up the entry of an ask. It reports false if its word cannot decide the ask.
func (p *commonPart) find(h *Hub) bool {
	l, ok := p.ask.Limiter.(*Limiter)
	if !ok || l == nil || l.hub != h || p.ask.N < 1 {
		return false
	}
	if p.e = l.terms.Store.Get(p.ask.Key); p.e == nil {
		return false
	}
	p.plan = p.e.Plan.Load()
	return p.plan.From != account.FromCall && p.ask.N <= p.plan.Most && p.decides()
}

// decides reports whether the word can decide the ask, and notes its kind. Without the entry's lock, that can be over
// at once. A denial of several units needs the account, and a limit in shadow admits the call that its word denies.
func (p *commonPart) decides() bool {
	w := p.e.Word.Load()
	if p.kind = account.KindOf(w); account.Over(w, p.e.Terms.Clock.Epoch()) {
		return false
	}
	if p.kind == account.DenyBudget {
		return p.ask.N == 1 && !p.e.Terms.Control.Shadow.Load()
	}
	return account.UnitsOf(w) >= p.ask.N
}

// common decides the ask as for one limit, unless the word has changed its kind since find. Call it with the entry
// locked.
func (p *commonPart) common() bool {
	kind := p.kind
	p.ask.Result, p.ask.Taken = hybridlimit.Result{}, hybridlimit.Taken{}
	return p.e.Plan.Load() == p.plan && p.decides() && p.kind == kind && p.e.Terms.Common(p.e, p.plan, p.ask.N, &p.ask.Result)
}

// take names the units that common has taken.
func (p *commonPart) take() {
	if p.ask.Result.Allowed {
		p.ask.Taken = (*giver)(p.ask.Limiter.(*Limiter)).taken(p.plan, p.e.Tag())
	}
}

// spendAll spends the units of all parts, or of none. Call it with the entries locked.
func spendAll(parts []commonPart) bool {
	for i := range parts {
		if parts[i].common() {
			continue
		}
		for j := range parts[:i] {
			parts[j].putBack()
		}
		return false
	}
	return true
}

// putBack puts the spent units back into the word, as if there had been no call.
func (p *commonPart) putBack() {
	p.e.Word.Add(uint64(p.ask.N))
	if p.ask.N > 1 {
		p.e.Terms.Count.Words[p.kind].More.Add(1 - p.ask.N)
	}
}

// denyAll denies the call by the limit with the longest RetryAfter. No other word is changed: the call counts once. It
// reports false if that limit no longer denies.
func denyAll(parts []commonPart) (res hybridlimit.Result, ok bool) {
	var worst *commonPart
	var longest time.Duration
	for i := range parts {
		p := &parts[i]
		p.ask.Result, p.ask.Taken = hybridlimit.Result{}, hybridlimit.Taken{}
		if p.kind != account.DenyBudget {
			continue
		}
		if wait := p.e.Terms.RetryFromWord(p.e, p.plan, p.ask.N); worst == nil || wait > longest {
			worst, longest = p, wait
		}
	}
	worst.e.Hold()
	defer worst.e.Release()
	if !worst.common() {
		return res, false
	}
	return worst.ask.Result, true
}
