package keys

import (
	"log/slog"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// OverflowQuiet is the least time between two lines about the overflow of one limiter.
const OverflowQuiet = 10 * time.Second

// Crowded reports whether memory has no room for a key that is not in memory. This is the case if none of the entries
// that store.add would check can be evicted. It copies the list of all entries of the shard, unless the first one may
// go.
func (t *Terms) Crowded(key string, now int64) bool {
	sh, _, have := t.Store.lock(key)
	oldest, _, _ := sh.lru.GetOldest()
	full := have == nil && sh.lru.Len() == sh.max
	sh.mu.Unlock()
	if !full || oldest.mayGo(now) {
		return false
	}
	sh.mu.Lock()
	entries := sh.lru.Keys()
	sh.mu.Unlock()
	return !slices.ContainsFunc(entries[:min(evictTries, len(entries))], func(e *Entry) bool { return e.mayGo(now) })
}

// WithoutMemory decides a call that Redis does not answer, for a key that finds no room in memory. The admitted units
// are counted as dropped and not owed: Redis never learns of them.
func (t *Terms) WithoutMemory(key string, at Place, n int64) account.Verdict {
	if t.StrictDenies(at.Tag) {
		return account.Verdict{Action: account.Deny, Source: hybridlimit.SourceTimeout, Retry: int64(t.StrictRetry())}
	}
	v := t.FromOverflow(key, at, at.Plan, n)
	t.CountOverflow(n, v.Action == account.Admit)
	return v
}

// StrictDenies reports whether a call that Redis did not answer is denied, because the answer of Redis counts: see
// account.Account.TimedOut.
func (t *Terms) StrictDenies(tag int) bool {
	return t.Control.Mode() == account.ModeStrict && !t.Alone(tag)
}

// StrictRetry returns the RetryAfter of such a call.
func (t *Terms) StrictRetry() time.Duration { return max(t.Engine.RTT(), Tick) }

// FromOverflow is withoutMemory without the counting.
func (t *Terms) FromOverflow(key string, at Place, r *account.Plan, n int64) account.Verdict {
	now := t.Clock.Now()
	v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceFallback, Retry: int64(t.SyncInterval)}
	f := t.Share(r, t.Fleet.Size())
	f.Ends = t.WindowEnd(at.Tag, r.Window, now)
	if f.Kind == fallback.KindAllowAll {
		v.Action, v.Retry = account.Admit, 0
	}
	if !f.Counts() {
		return v
	}
	left := t.Shares.Left(key, f.Size, now)
	if t.Shares.Take(key, f.Size, n, now) {
		v.Action, v.Retry, v.Left = account.Admit, 0, int64(left)-n
		if r.Bucket.Queue {
			v.Delay = int64((float64(f.Burst) - left) / f.PerNs)
		}
	} else if wait := t.Shares.Wait(key, f.Size, n, now); wait >= 0 {
		v.Retry, v.Left = wait, int64(left)
	}
	return v
}

// CountOverflow counts a decision of withoutMemory, and logs a line about them from time to time.
func (t *Terms) CountOverflow(n int64, admitted bool) {
	t.Count.Overflow.Add(1)
	if admitted {
		t.Count.Dropped.Add(n)
	}
	if _, ok := t.Overflow.Due(); ok {
		t.Log.Event(tell.MsgOverflow, slog.String("limiter", t.Name), slog.String("fallback", t.Control.Fallback().String()),
			slog.Int64("keys", t.Store.Keys.Load()), slog.Int("shares", t.Shares.Len()), slog.Int64("decisions", t.Count.Overflow.Load()))
	}
}

// mayGo reports whether tryEvict would evict the entry if no call used it now. It changes nothing.
func (e *Entry) mayGo(now int64) bool {
	e.Lock()
	defer e.Unlock()
	if e.Dead() {
		return true
	}
	c := account.Conditions{Broken: e.Terms.Alone(e.Tag()), Fallback: e.Fallback(e.Plan.Load())}
	return e.Waiters.Len() == 0 && e.Account.MayGo(&c, account.UnitsOf(e.Word.Load()), now)
}

// Fallback returns the size of the entry's share, and the share.
func (e *Entry) Fallback(p *account.Plan) account.Fallback {
	f := e.Terms.Share(p, e.Terms.Fleet.Size())
	f.Share = e
	return f
}

// Left implements fallback.Share.
func (e *Entry) Left(s fallback.Size, now int64) float64 { return e.Terms.Shares.Left(e.Name, s, now) }

// Take implements fallback.Share.
func (e *Entry) Take(s fallback.Size, n, now int64) bool {
	return e.Terms.Shares.Take(e.Name, s, n, now)
}

// Put implements fallback.Share.
func (e *Entry) Put(s fallback.Size, n, now int64) { e.Terms.Shares.Put(e.Name, s, n, now) }

// Wait implements fallback.Share.
func (e *Entry) Wait(s fallback.Size, n, now int64) int64 {
	return e.Terms.Shares.Wait(e.Name, s, n, now)
}

// Lower implements fallback.Share.
func (e *Entry) Lower(s fallback.Size, level float64, now int64) {
	e.Terms.Shares.Lower(e.Name, s, level, now)
}

// Debit implements fallback.Share.
func (e *Entry) Debit(s fallback.Size, n, now int64) { e.Terms.Shares.Debit(e.Name, s, n, now) }

var _ fallback.Share = (*Entry)(nil)

// ForecastAlone returns what a call for one unit would get without Redis, for a key that is not in memory.
func (t *Terms) ForecastAlone(key string, at Place) account.Forecast {
	now := t.Clock.Now()
	f := t.Share(at.Plan, t.Fleet.Size())
	f.Ends = t.WindowEnd(at.Tag, at.Plan.Window, now)
	f.Share = fallback.OfKey{Of: t.Shares, Key: key}
	return f.Forecast(int64(Tick), now)
}
