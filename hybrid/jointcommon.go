package hybrid

import (
	"cmp"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// This file has the fast path of AllowJoint: all limits admit the call, each from the budget of its word.

// maxCommon is the largest number of limits that the fast path decides together.
const maxCommon = 4

// commonPart is one limit of the fast path.
type commonPart struct {
	ask  *hybridlimit.Ask
	e    *entry
	plan *account.Plan
	kind account.BudgetKind
}

// allCommon decides asks if the word of each key has enough units. Otherwise it returns false, and has taken nothing. It locks
// the entries in the order of allowJoint, but it does not expand their accounts. While an entry is locked, its word is neither
// taken back nor loaded. So units that were spent from it can be put back: only other calls of the fast path change it meanwhile.
func (h *Hub) allCommon(asks []hybridlimit.Ask) (res hybridlimit.Result, ok bool) {
	if len(asks) == 0 || len(asks) > maxCommon {
		return res, false
	}
	var all [maxCommon]commonPart
	parts := all[:len(asks)]
	for i := range asks {
		at := i
		p := commonPart{ask: &asks[i]}
		if !p.find(h) {
			return res, false
		}
		for ; at > 0 && p.before(&parts[at-1]) < 0; at-- {
			parts[at] = parts[at-1]
		}
		if parts[at] = p; at > 0 && parts[at-1].e == p.e { // the units of one key must be added up
			return res, false
		}
	}
	for i := range parts {
		parts[i].e.mu.Lock()
	}
	if ok = spendAll(parts); ok {
		for i := range parts {
			if one := &parts[i].ask.Result; i == 0 || one.Remaining < res.Remaining {
				res = *one
			}
		}
	}
	for i := range parts {
		parts[i].e.mu.Unlock()
	}
	return res, ok
}

// find looks up the entry of an ask. It reports false if the fast path cannot decide the ask.
func (p *commonPart) find(h *Hub) bool {
	l, ok := p.ask.Limiter.(*Limiter)
	if !ok || l == nil || l.hub != h || p.ask.N < 1 {
		return false
	}
	if p.e = l.store.get(p.ask.Key); p.e == nil {
		return false
	}
	p.plan = p.e.plan.Load()
	return p.plan.From != account.FromCall && p.spendable()
}

// spendable reports whether the word has the units, and notes its kind. Another call can spend them meanwhile.
func (p *commonPart) spendable() bool {
	w := p.e.word.Load()
	p.kind = account.KindOf(w)
	return !account.Over(w, p.e.lim.clock.Epoch()) && p.kind != account.DenyBudget && account.UnitsOf(w) >= p.ask.N
}

// before compares the parts by the order of locks: see parts.
func (p *commonPart) before(q *commonPart) int {
	return cmp.Or(cmp.Compare(p.e.lim.cfg.Name, q.e.lim.cfg.Name), cmp.Compare(p.ask.Key, q.ask.Key))
}

// spendAll spends the units of all parts, or of none. Call it with the entries locked.
func spendAll(parts []commonPart) bool {
	for i := range parts {
		p := &parts[i]
		// The word may have been loaded anew since find, for another plan or with a denial.
		if p.e.plan.Load() == p.plan && p.spendable() && p.e.lim.common(p.e, p.plan, p.ask.N, &p.ask.Result) {
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
	p.e.word.Add(uint64(p.ask.N))
	if p.ask.N > 1 {
		p.e.lim.count.words[p.kind].more.Add(1 - p.ask.N)
	}
}
