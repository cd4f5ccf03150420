package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// This file has the fast path of AllowJoint: the words of all keys decide. Either all limits admit the call, each from its budget,
// or the budgets of some deny it.

// maxCommon is the largest number of limits that the fast path decides together.
const maxCommon = 4

// commonPart is one limit of the fast path.
type commonPart struct {
	ask  *hybridlimit.Ask
	e    *keys.Entry
	plan *account.Plan
	kind account.BudgetKind // of the word
}

// allCommon decides asks if the words of all keys can. Otherwise it returns false, and has taken nothing. It locks the entries in
// the order of allowJoint, but it does not expand their accounts. While an entry is locked, its word is neither taken back nor
// loaded. So units that were spent from it can be put back: only other calls of the fast path change it meanwhile.
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
	return p.plan.From != account.FromCall && p.ask.N <= p.plan.Burst && p.decides()
}

// decides reports whether the word can decide the ask, and notes its kind. Without the entry's lock, that can be over at once. A
// denial of several units needs the account, and a limit in shadow admits the call that its word denies.
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

// common decides the ask as for one limit, unless the word has changed its kind since find. Call it with the entry locked.
func (p *commonPart) common() bool {
	kind := p.kind
	p.ask.Result = hybridlimit.Result{}
	return p.e.Plan.Load() == p.plan && p.decides() && p.kind == kind && p.e.Terms.Common(p.e, p.plan, p.ask.N, &p.ask.Result)
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

// denyAll denies the call by the limit with the longest RetryAfter. No other word is changed: the call counts once. It reports false
// if that limit no longer denies.
func denyAll(parts []commonPart) (res hybridlimit.Result, ok bool) {
	var worst *commonPart
	var longest time.Duration
	for i := range parts {
		p := &parts[i]
		p.ask.Result = hybridlimit.Result{}
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
