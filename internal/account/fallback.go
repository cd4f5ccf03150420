package account

import "github.com/hybridlimit/hybridlimit"

// This file is decisions while Redis is away.

// Policy is how a limiter decides without Redis: see hybrid.Fallback.
type Policy uint8

// The policies.
const (
	FallbackShare Policy = iota
	FallbackFull
	FallbackAllowAll
	FallbackDenyAll
)

// Fallback is the size of a process's own bucket while Redis is away.
type Fallback struct {
	Policy Policy  // of the limiter
	Cap    float64 // units
	PerNs  float64 // units that come back each ns
	Period int64   // of a window, ns; 0: it is a bucket
	Ends   int64   // of a window: ns at which the present one is over; 0: not known
}

// Most is how many units are saved up. A share below one unit is carried until it is one, or it would never admit.
func (f Fallback) Most() float64 { return max(f.Cap, 1) }

// Counts reports whether the bucket decides, so that it can be used up.
func (f Fallback) Counts() bool {
	return (f.Policy == FallbackShare || f.Policy == FallbackFull) && f.PerNs > 0
}

// fallbackBucket is that bucket. It counts in fractional units, so that a share below one unit still admits in time.
type fallbackBucket struct {
	level    float64 // units left
	at       int64   // ns at which level was right
	started  bool
	admitted int64 // units admitted and not yet owed
	past     int64 // of a window: those of admitted that were in an earlier one
	ends     int64 // of a window: ns at which the others' is over
}

func (b *fallbackBucket) refill(f Fallback, now int64) {
	if now > b.at {
		b.level += float64(now-b.at) * f.PerNs
		b.at = now
	}
	b.level = min(b.level, f.Most())
}

// start begins a stretch of fallback from a level, unless one has begun.
func (b *fallbackBucket) start(level float64, now int64) {
	if !b.started {
		b.level, b.at, b.started = level, now, true
	}
}

// take decides n units. warm is the level to start from.
func (b *fallbackBucket) take(f Fallback, n, now int64, warm float64) bool {
	b.start(warm, now)
	b.refill(f, now)
	switch f.Policy {
	case FallbackDenyAll:
		return false
	case FallbackAllowAll:
	default:
		if b.level < float64(n) {
			return false
		}
	}
	b.level = max(0, b.level-float64(n))
	if f.Period > 0 && now >= b.ends {
		b.past = b.admitted
		if b.ends = f.Ends; b.ends <= now {
			b.ends = now + f.Period // as late as it can be
		}
	}
	b.admitted += n
	return true
}

// wait is how many ns until take(n) may succeed; negative: never.
func (b *fallbackBucket) wait(f Fallback, n int64) int64 {
	if f.Policy == FallbackDenyAll || float64(n) > f.Most() || f.PerNs <= 0 {
		return -1
	}
	return int64(max(0, float64(n)-b.level)/f.PerNs) + 1
}

// settle ends a stretch of fallback. Owed is the lesser of the units that were admitted and the units that the bucket lacks at
// this moment. Units that have been refilled since are forgiven, as they would have been in Redis. In a window no unit comes
// back before its end, and all are forgiven with it: owed is what was admitted in the current one.
func (b *fallbackBucket) settle(f Fallback, now int64) int64 {
	if b.admitted == 0 {
		return 0
	}
	b.refill(f, now)
	owed := int64(0)
	if f.Period == 0 {
		lacks := int64(f.Cap - b.level + 0.999999)
		owed = min(b.admitted, max(lacks, 0))
	} else if now < b.ends {
		owed = max(0, b.admitted-b.past) // a lease may have paid for some
	}
	b.admitted, b.past = 0, 0
	return owed
}

// locally decides a call without Redis.
func (a *Account) locally(c *Conditions, n, now int64, why Reason) Verdict {
	if a.AtOnce(n) >= n {
		v := a.hand(n, now)
		v.Without = why
		return v
	}
	delay := a.queued(c, now)
	if a.local.take(c.Fallback, n, now, a.warm(c, now)) {
		v := Verdict{
			Action: Admit, Source: hybridlimit.SourceFallback, Reason: LocalUnits, Without: why, Sync: SyncLazily, Delay: delay,
		}
		if c.Fallback.Policy == FallbackAllowAll {
			v.Reason = LocalAlways
		}
		return v
	}
	v := Verdict{Action: Deny, Source: hybridlimit.SourceFallback, Reason: LocalEmpty, Without: why}
	if c.Fallback.Policy == FallbackDenyAll {
		v.Reason = LocalNever
	}
	if v.Retry = a.local.wait(c.Fallback, n); v.Retry < 0 { // only Redis can admit it, and may be back any moment
		v.Retry = c.Tick
	}
	return v
}

// warm is the level from which the fallback bucket starts: this process's part of the level that Redis last told, rather than a
// full bucket.
func (a *Account) warm(c *Conditions, now int64) float64 {
	if !a.fresh(now) {
		return c.Fallback.Cap
	}
	left := float64(a.level(c, now))/float64(c.Bucket.Unit) - float64(a.owed()+a.untold)
	return max(0, min(c.Fallback.Cap, left*c.Fallback.Cap/float64(c.Limit.BurstSize())))
}

// StartFallback begins a stretch of fallback, unless one has begun. Its bucket refills from the first call on, also if that
// call is denied.
func (a *Account) StartFallback(c *Conditions, now int64) { a.local.start(a.warm(c, now), now) }

// StartFallbackAt is StartFallback from a given level, in units.
func (a *Account) StartFallbackAt(level float64, now int64) { a.local.start(level, now) }

// FallbackLeft is how many units the fallback bucket has now, if it decided. It works on a copy.
func (a *Account) FallbackLeft(c *Conditions, now int64) float64 {
	b := a.local
	b.start(a.warm(c, now), now)
	b.refill(c.Fallback, now)
	return b.level
}

// FallbackOwed is the units that the fallback has admitted and that are not settled.
func (a *Account) FallbackOwed() int64 { return a.local.admitted }

// Forgive ends a stretch of fallback that leaves nothing to be owed, before Redis is back, and returns the units forgiven. Else
// a key for which the fallback has once admitted a call could not be forgotten while Redis is away, and a memory full of such
// keys has no room for another one.
func (a *Account) Forgive(f Fallback, now int64) (forgiven int64) {
	b := a.local
	if b.settle(f, now) > 0 {
		return 0
	}
	forgiven = a.local.admitted
	a.local = b
	return forgiven
}
