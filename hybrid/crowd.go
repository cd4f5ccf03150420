package hybrid

import (
	"log/slog"
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// crowded reports whether memory has no room for a key that is not in memory. This is the case if none of the entries that
// store.add would check can be evicted. It copies the list of all entries of the shard, unless the first one may go.
func (t *terms) crowded(key string, now int64) bool {
	sh, _, have := t.store.lock(key)
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

// withoutMemory decides a call that Redis does not answer, for a key that finds no room in memory. The admitted units
// are counted as dropped and not owed: Redis never learns of them.
func (t *terms) withoutMemory(key string, at place, n int64) account.Verdict {
	if t.control.Mode() == account.ModeStrict && !t.alone(at.tag) { // as account.Account.without
		return account.Verdict{Action: account.Deny, Source: hybridlimit.SourceTimeout, Retry: max(int64(t.engine.RTT()), int64(tick))}
	}
	v := t.fromOverflow(key, at, at.plan, n)
	t.countOverflow(n, v.Action == account.Admit)
	return v
}

// fromOverflow is withoutMemory without the counting.
func (t *terms) fromOverflow(key string, at place, r *account.Plan, n int64) account.Verdict {
	now := t.clock.Now()
	v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceFallback, Retry: int64(t.SyncInterval)}
	f := t.share(r, t.fleet.Size())
	f.Ends = t.clocks.WindowEnd(at.tag, r.Window.Period, now)
	if f.Policy == fallback.PolicyAllowAll {
		v.Action, v.Retry = account.Admit, 0
	}
	if !f.Counts() {
		return v
	}
	left := t.shares.Left(key, f.Size, now)
	if t.shares.Take(key, f.Size, n, now) {
		v.Action, v.Retry, v.Left = account.Admit, 0, int64(left)-n
		if r.Bucket.Queue {
			v.Delay = int64((float64(f.Burst) - left) / f.PerNs)
		}
	} else if wait := t.shares.Wait(key, f.Size, n, now); wait >= 0 {
		v.Retry, v.Left = wait, int64(left)
	}
	return v
}

// countOverflow counts a decision of withoutMemory, and logs a line about them from time to time.
func (t *terms) countOverflow(n int64, admitted bool) {
	t.count.Overflow.Add(1)
	if admitted {
		t.count.Dropped.Add(n)
	}
	if _, ok := t.overflow.Due(); ok {
		t.log.Event(tell.MsgOverflow, slog.String("limiter", t.name), slog.String("fallback", t.control.Fallback().String()),
			slog.Int64("keys", t.store.keys.Load()), slog.Int("shares", t.shares.Len()), slog.Int64("decisions", t.count.Overflow.Load()))
	}
}

// mayGo reports whether tryEvict would evict the entry if no call used it now. It changes nothing.
func (e *entry) mayGo(now int64) bool {
	e.lock()
	defer e.unlock()
	if e.dead() {
		return true
	}
	c := account.Conditions{Broken: e.of.alone(e.tag()), Fallback: e.share(e.plan.Load())}
	return e.waiters.Len() == 0 && e.account.MayGo(&c, account.UnitsOf(e.word.Load()), now)
}
