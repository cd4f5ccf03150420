package hybrid

import (
	"log/slog"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// This file joins the limiter to its shares, which decide while Redis does not answer. Entries use them, and so do keys that find
// no memory, because memory is full of keys that owe. All classes of a limiter use the same shares. See
// docs/decisions/0055-shares-without-redis.md.

// share returns the size of the entry's share, and the share.
func (e *entry) share(p *account.Plan) account.Fallback {
	f := e.lim.share(p, e.lim.fleet.Size())
	f.Share = e
	return f
}

// Left implements fallback.Share.
func (e *entry) Left(s fallback.Size, now int64) float64 { return e.lim.shares.Left(e.name, s, now) }

// Take implements fallback.Share.
func (e *entry) Take(s fallback.Size, n, now int64) bool {
	return e.lim.shares.Take(e.name, s, n, now)
}

// Put implements fallback.Share.
func (e *entry) Put(s fallback.Size, n, now int64) { e.lim.shares.Put(e.name, s, n, now) }

// Wait implements fallback.Share.
func (e *entry) Wait(s fallback.Size, n, now int64) int64 {
	return e.lim.shares.Wait(e.name, s, n, now)
}

// Lower implements fallback.Share.
func (e *entry) Lower(s fallback.Size, level float64, now int64) {
	e.lim.shares.Lower(e.name, s, level, now)
}

var _ fallback.Share = (*entry)(nil)

// withoutMemory decides a call that Redis does not answer, for a key that finds no room in memory. The admitted units
// are counted as dropped and not owed: Redis never learns of them.
func (l *Limiter) withoutMemory(key string, at place, n int64) account.Verdict {
	if l.Mode() == ModeStrict && !l.alone(at.tag) { // as account.Account.without
		return account.Verdict{Action: account.Deny, Source: hybridlimit.SourceTimeout, Retry: max(int64(l.hub.engine.RTT()), int64(tick))}
	}
	v := l.fromOverflow(key, at, at.plan, n)
	l.countOverflow(n, v.Action == account.Admit)
	return v
}

// fromOverflow is withoutMemory without the counting.
func (l *Limiter) fromOverflow(key string, at place, r *account.Plan, n int64) account.Verdict {
	now := l.hub.clock.Now()
	v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceFallback, Retry: int64(l.cfg.SyncInterval)}
	f := l.share(r, l.fleet.Size())
	f.Ends = l.hub.clocks.windowEnd(at.tag, r.Window.Period, now)
	if f.Policy == fallback.PolicyAllowAll {
		v.Action, v.Retry = account.Admit, 0
	}
	if !f.Counts() {
		return v
	}
	left := l.shares.Left(key, f.Size, now)
	if l.shares.Take(key, f.Size, n, now) {
		v.Action, v.Retry, v.Left = account.Admit, 0, int64(left)-n
		if r.Bucket.Queue {
			v.Delay = int64((float64(f.Burst) - left) / f.PerNs)
		}
	} else if wait := l.shares.Wait(key, f.Size, n, now); wait >= 0 {
		v.Retry, v.Left = wait, int64(left)
	}
	return v
}

// countOverflow counts a decision of withoutMemory, and logs a line about them from time to time.
func (l *Limiter) countOverflow(n int64, admitted bool) {
	l.count.Overflow.Add(1)
	if admitted {
		l.count.Dropped.Add(n)
	}
	if _, ok := l.overflow.Due(); ok {
		l.hub.log.Event(tell.MsgOverflow, slog.String("limiter", l.cfg.Name), slog.String("fallback", l.control.Fallback().String()),
			slog.Int64("keys", l.store.keys.Load()), slog.Int("shares", l.shares.Len()), slog.Int64("decisions", l.count.Overflow.Load()))
	}
}

// overflowQuiet is the least time between two lines about the overflow of one limiter.
const overflowQuiet = 10 * time.Second
