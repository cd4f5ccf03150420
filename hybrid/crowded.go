package hybrid

import (
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// This file has the part of Inspect for keys for which memory has no room.

// crowded reports whether memory has no room for a key that is not in memory. This is the case if none of the entries that
// store.add would check can be evicted. It copies the list of all entries of the shard, unless the first one may go.
func (l *Limiter) crowded(key string, now int64) bool {
	sh, _, have := l.store.lock(key)
	oldest, _, _ := sh.lru.GetOldest()
	full := have == nil && sh.lru.Len() == sh.max
	sh.mu.Unlock()
	if !full || oldest.mayGo(now) {
		return false
	}
	sh.mu.Lock()
	entries := sh.lru.Keys()
	sh.mu.Unlock()
	return !slices.ContainsFunc(entries[:min(evictTries, len(entries))], func(e *entry) bool { return e.mayGo(now) })
}

// mayGo reports whether tryEvict would evict the entry if no call used it now. It changes nothing.
func (e *entry) mayGo(now int64) bool {
	e.lock()
	defer e.unlock()
	if e.dead() {
		return true
	}
	c := account.Conditions{Broken: e.lim.alone(e.tag()), Fallback: e.share(e.plan.Load())}
	return e.waiters.Len() == 0 && e.account.MayGo(&c, account.UnitsOf(e.word.Load()), now)
}

// explainOverflow explains a decision without Redis for a key for which memory has no room: see withoutMemory.
func (x *explanation) explainOverflow(why string) {
	const full = "the fallback (%v) decides since %s, and memory is full of keys that owe: there is none to count this one in"
	policy, t := x.l.control.Fallback(), x.conditions.Fallback
	if !t.Counts() {
		if policy == fallback.PolicyAllowAll {
			x.allow(hybridlimit.SourceFallback, full, policy, why)
		} else {
			x.deny(hybridlimit.SourceFallback, x.now+int64(x.l.cfg.SyncInterval), full, policy, why)
		}
		return
	}
	left := t.Share.Left(t.Size, x.now)
	const some = full + ", and of its share of %d units %v are left"
	if left >= float64(1+t.Floor)-fallback.Slack {
		x.allow(hybridlimit.SourceFallback, some, policy, why, t.Burst, rounded(left))
		return
	}
	x.deny(hybridlimit.SourceFallback, x.now+t.Share.Wait(t.Size, 1, x.now), some, policy, why, t.Burst, rounded(left))
}
