package account

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// This file has the decisions without Redis. The share of the key decides; the account counts what it admits, because
// Redis must be told of it.

// locally decides a call without Redis: first from the held units, then from the share.
func (a *Account) locally(c *Conditions, n, now int64, why Reason) Verdict {
	if a.AtOnce(n) >= n {
		v := a.hand(n, now)
		v.Without = why
		return v
	}
	f := &c.Fallback
	deny := Verdict{Action: Deny, Source: hybridlimit.SourceFallback, Reason: LocalEmpty, Without: why, Retry: c.Tick}
	if f.Kind == fallback.KindDenyAll { // the account still fits its compact form
		deny.Reason = LocalNever
		return deny
	}
	a.StartFallback(c, now)
	admit := Verdict{
		Action: Admit, Source: hybridlimit.SourceFallback, Reason: LocalUnits, Without: why, Sync: SyncLazily, Delay: a.queued(c, now),
	}
	switch {
	case f.Kind == fallback.KindAllowAll:
		admit.Reason = LocalAlways
		f.Share.Lower(f.Size, f.Share.Left(f.Size, now)-float64(n), now)
	case !f.Share.Take(f.Size, n, now):
		if wait := f.Share.Wait(f.Size, n, now); wait >= 0 { // otherwise only Redis can admit it, and may be back at any moment
			deny.Retry = wait
		}
		return deny
	}
	a.local.note(f, n, now)
	return admit
}

// warm returns the level at which a period of fallback begins: this process's part of what the last answer of Redis
// left, if that is still known. Otherwise the share is full.
func (a *Account) warm(c *Conditions, now int64) float64 {
	most, left := float64(c.Fallback.Burst), 0.0
	switch {
	case a.refusal.N > 0 && now < a.refusal.Reset: // of a log
		left = float64(a.refusal.Left)
	case a.fresh(now):
		left = float64(a.level(c, now))/float64(c.Bucket.Unit) + float64(c.Floor)
	default:
		return most
	}
	left -= float64(a.owed() + a.untold)
	return max(0, min(most, left*most/float64(c.Limit.BurstSize())))
}

// queued returns the ns by which the fallback delays the next call that it admits.
func (a *Account) queued(c *Conditions, now int64) int64 {
	f := &c.Fallback
	if !c.Bucket.Queue || f.Kind == fallback.KindAllowAll || f.PerNs <= 0 {
		return 0
	}
	return int64(max(0, float64(f.Burst)-f.Share.Left(f.Size, now)) / f.PerNs)
}

// StartFallback begins a period of fallback, unless one has begun: it lowers the share to the level of the view. A
// share that was used in an earlier period, or by another class, may have less.
func (a *Account) StartFallback(c *Conditions, now int64) {
	if a.local.began || c.Fallback.Kind == fallback.KindDenyAll {
		return
	}
	a.local.began = true
	c.Fallback.Share.Lower(c.Fallback.Size, a.warm(c, now), now)
}

// FallbackLeft returns the units that the share has left, if it decides now.
func (a *Account) FallbackLeft(c *Conditions, now int64) float64 {
	a.StartFallback(c, now)
	return c.Fallback.Share.Left(c.Fallback.Size, now)
}

// Alone returns what a call for one unit would get without Redis.
func (a *Account) Alone(c *Conditions, now int64) Forecast {
	a.StartFallback(c, now)
	return c.Fallback.Forecast(c.Tick, now)
}

// Forecast returns what a call for one unit would get from a fallback.
func (f *Fallback) Forecast(tick, now int64) Forecast {
	answer := Forecast{Source: hybridlimit.SourceFallback, Until: tick}
	switch f.Kind {
	case fallback.KindAllowAll:
		answer.Allowed, answer.Until, answer.Left = true, 0, f.Burst
		return answer
	case fallback.KindDenyAll:
		return answer
	}
	left := f.Share.Left(f.Size, now) - float64(f.Floor) + fallback.Slack
	if answer.Left = max(0, int64(left)); left >= 1 {
		answer.Allowed, answer.Until = true, 0
		return answer
	}
	answer.Until = max(f.Share.Wait(f.Size, 1, now), tick)
	return answer
}

// Forgive ends a period of fallback that leaves no debt, before Redis is back, and returns the forgiven units. Without
// it, a key for which the fallback has admitted a call could not be forgotten while Redis is away. A memory full of
// such keys would have no room for another key.
func (a *Account) Forgive(f Fallback, now int64) (forgiven int64) {
	o := a.local
	if o.settle(&f, now) > 0 {
		return 0
	}
	forgiven = a.local.admitted
	a.local = o
	return forgiven
}
