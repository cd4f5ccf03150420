package account

import "github.com/hybridlimit/hybridlimit"

// This file has the decisions without Redis.

// Policy is the way in which a limiter decides without Redis: see hybrid.Fallback.
type Policy uint8

// The policies.
const (
	FallbackShare Policy = iota
	FallbackFull
	FallbackAllowAll
	FallbackDenyAll
)

// Fallback is the size of the fallback bucket, the local bucket of a process while Redis is away.
type Fallback struct {
	Policy Policy  // of the limiter
	Cap    float64 // units
	PerNs  float64 // units that come back each ns
	Period int64   // of a window, ns; 0: the limit is no window
	Ends   int64   // of a window: ns; the end of the current window; 0: not known
	Floor  float64 // units that the class leaves to others
	Pool   Pool    // the bucket; nil: the account has it
}

// Pool is the fallback bucket of a key that several accounts of a process share: those of the classes of a limiter.
type Pool interface {
	// Level returns the units left.
	Level(f Fallback, now int64) float64
	// Take takes n units if it leaves f.Floor. It reports whether it did.
	Take(f Fallback, n, now int64) bool
	// Put returns units that were taken just now.
	Put(f Fallback, n int64)
	// Lower lowers the bucket to a level, if it has more.
	Lower(f Fallback, level float64, now int64)
}

// Most returns the largest level of the bucket, in units. A share below one unit is saved up to one unit, or it would never
// admit.
func (f Fallback) Most() float64 { return max(f.Cap, 1) }

// Counts reports whether the bucket decides, so that it can become empty.
func (f Fallback) Counts() bool {
	return (f.Policy == FallbackShare || f.Policy == FallbackFull) && f.PerNs > 0
}

// fallbackBucket is the state of a fallback bucket. It counts in fractional units, so that a share below one unit still admits
// in time.
type fallbackBucket struct {
	level    float64 // units left
	at       int64   // ns; the time for which level holds
	started  bool
	admitted int64 // units admitted and not yet owed
	past     int64 // of a window: the part of admitted from earlier windows
	ends     int64 // of a window: ns; the end of the window of the other units
}

func (b *fallbackBucket) refill(f Fallback, now int64) {
	if f.Pool != nil {
		b.level, b.at = f.Pool.Level(f, now), now
		return
	}
	if now > b.at {
		b.level += float64(now-b.at) * f.PerNs
		b.at = now
	}
	b.level = min(b.level, f.Most())
}

// start begins a period of fallback at a level, unless one has begun. A shared bucket may have begun at a lower level.
func (b *fallbackBucket) start(f Fallback, level float64, now int64) {
	if b.started {
		return
	}
	b.level, b.at, b.started = level, now, true
	if f.Pool != nil {
		f.Pool.Lower(f, level, now)
	}
}

// take decides a call for n units. warm is the level at which a period of fallback begins.
func (b *fallbackBucket) take(f Fallback, n, now int64, warm float64) bool {
	if f.Policy == FallbackDenyAll {
		return false // no bucket is started, so that the account still fits its compact form
	}
	b.start(f, warm, now)
	b.refill(f, now)
	switch {
	case f.Policy == FallbackAllowAll:
	case f.Pool != nil && !f.Pool.Take(f, n, now), f.Pool == nil && b.level < float64(n)+f.Floor:
		return false
	}
	b.level = max(0, b.level-float64(n))
	if f.Period > 0 && now >= b.ends {
		b.past = b.admitted
		if b.ends = f.Ends; b.ends <= now {
			b.ends = now + f.Period // the latest possible end
		}
	}
	b.admitted += n
	return true
}

// wait returns the ns until take(n) may succeed; negative: never.
func (b *fallbackBucket) wait(f Fallback, n int64) int64 {
	if f.Policy == FallbackDenyAll || float64(n) > f.Most()-f.Floor || f.PerNs <= 0 {
		return -1
	}
	return int64(max(0, float64(n)+f.Floor-b.level)/f.PerNs) + 1
}

// settle ends a period of fallback and returns the owed units. They are the smaller of two numbers: the units that were
// admitted, and the units that the bucket lacks now. Units that have been refilled since are forgiven: Redis would also have
// refilled them. In a window, no unit comes back before the end of the window, and then all units are forgiven. So the units
// admitted in the current window are owed. Classes share the bucket, so each may owe what it lacks: together at most the units
// that they admitted.
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

// locally decides a call without Redis: first from the held units, then from the fallback bucket.
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
	if v.Retry = a.local.wait(c.Fallback, n); v.Retry < 0 { // only Redis can admit the call, and may be back at any moment
		v.Retry = c.Tick
	}
	return v
}

// warm returns the level at which the fallback bucket begins: this process's part of the level in the view, if the view is
// fresh. Otherwise the bucket begins full.
func (a *Account) warm(c *Conditions, now int64) float64 {
	if !a.fresh(now) {
		return c.Fallback.Cap
	}
	left := float64(a.level(c, now))/float64(c.Bucket.Unit) + float64(c.Floor) - float64(a.owed()+a.untold)
	return max(0, min(c.Fallback.Cap, left*c.Fallback.Cap/float64(c.Limit.BurstSize())))
}

// StartFallback begins a period of fallback, unless one has begun. The bucket refills from the first call on, even if that call
// is denied.
func (a *Account) StartFallback(c *Conditions, now int64) {
	a.local.start(c.Fallback, a.warm(c, now), now)
}

// StartFallbackAt is StartFallback with a given level, in units, for an account that has its own bucket.
func (a *Account) StartFallbackAt(level float64, now int64) { a.local.start(Fallback{}, level, now) }

// FallbackLeft returns the units that the fallback bucket would have if it decided now. It works on a copy.
func (a *Account) FallbackLeft(c *Conditions, now int64) float64 {
	b := a.local
	b.start(c.Fallback, a.warm(c, now), now)
	b.refill(c.Fallback, now)
	return b.level
}

// FallbackOwed returns the units that the fallback has admitted and that are not settled.
func (a *Account) FallbackOwed() int64 { return a.local.admitted }

// Forgive ends a period of fallback that leaves no debt, before Redis is back, and returns the forgiven units. Without it, a
// key for which the fallback has admitted a call could not be forgotten while Redis is away. A memory full of such keys would
// have no room for another key.
func (a *Account) Forgive(f Fallback, now int64) (forgiven int64) {
	b := a.local
	if b.settle(f, now) > 0 {
		return 0
	}
	forgiven = a.local.admitted
	a.local = b
	return forgiven
}
