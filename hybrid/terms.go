package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// terms is what the keys of one class of a limiter share: the source of their plans, clocks, counters, and where their syncs go. A key
// knows its terms, and no limiter.
type terms struct {
	termsConfig
	name    string // of the limiter
	clock   *clock.Clock
	control *control.View // which limit, mode and switch is in force
	store   *store
	count   tell.Counts
	hist    *tell.Histograms // nil: no metrics provider
	log     *tell.Log

	engine   *ratesync.Engine
	names    lua.Names
	clocks   *member.Clocks
	pace     *member.Pace
	fleet    *census.Census
	shares   *fallback.Shares // of all classes of the limiter
	overflow *sometimes.Line  // about keys that find no memory, likewise

	broken func(tag int) bool  // Redis does not answer
	lost   func(tag int) int64 // ns at which the last loss of the server of a tag was noticed; 0: never
	wants  func(mark string)   // other processes hold units of a key that this one was refused
}

// termsConfig is the part of Config that keys decide by.
type termsConfig struct {
	Overshoot     float64
	SyncEvery     int64
	SyncInterval  time.Duration
	MaxWait       time.Duration
	FallbackFloor int64
	Subject       func(key string) string
}

// conditions returns the conditions of an event of a key. entry.conditions adds the conditions that depend on the tag.
func (t *terms) conditions(p *account.Plan, now int64) (c account.Conditions) {
	t.setConditions(&c, p, now)
	return c
}

// setConditions is conditions for zero Conditions in place. It sets field by field, because a composite literal would be
// made elsewhere and copied.
func (t *terms) setConditions(c *account.Conditions, p *account.Plan, now int64) {
	t.pace.Event(p.Full)
	c.Bucket, c.Window, c.Floor, c.Limit = p.Bucket, p.Window, p.Floor, p.Limit
	c.Mode, c.MaxWait, c.Interval = t.control.Mode(), int64(t.MaxWait), int64(t.SyncInterval)
	c.N, c.Every, c.Adaptive = t.fleet.Accounts(), t.every(), t.SyncEvery == 0
	c.RTT, c.Tick = int64(t.engine.RTT()), int64(tick)
	c.RelookIn = clock.Jitter(account.MaxView)
	c.Closing, c.Behind = t.control.Closed.Load(), t.engine.Behind()
	if t.fleet.Known(now) {
		c.Credit = t.credit(p, c.N)
	}
	c.Blind = account.MayBeFull(p.Full, max(t.count.Born, p.Began), t.store.lastEvict.Load(), now)
	c.Fallback = t.share(p, t.fleet.Size())
}

// every returns K. For an adaptive K it returns the smallest value that K can have.
func (t *terms) every() int64 {
	if t.SyncEvery == 0 {
		return defaultSyncEvery
	}
	return t.SyncEvery
}

// givesCredit reports whether the mode uses credit at all.
func (t *terms) givesCredit() bool {
	mode := t.control.Mode()
	return mode == account.ModeDeferred || mode == account.ModeAuto && t.Overshoot > 0
}

// credit returns C in a fleet of n accounts.
func (t *terms) credit(p *account.Plan, n int64) int64 {
	return p.Credit(t.control.Mode(), t.Overshoot, t.every(), n)
}

// creditNow returns C of the limiter's own limit; 0 while N is not known.
func (t *terms) creditNow() int64 {
	if !t.fleet.Known(t.clock.Now()) {
		return 0
	}
	return t.credit(t.control.Plan(), t.fleet.Accounts())
}

// share returns the size of a key's share in a fleet of n processes.
func (t *terms) share(p *account.Plan, n int64) account.Fallback {
	return p.Fallback(t.control.Fallback(), t.FallbackFloor, n)
}

// lazily returns the due time of a sync that can wait for T. Due times lie on a grid of T/2, so that many keys share
// a message.
func (t *terms) lazily(now time.Time) time.Time {
	at := t.clock.At(now) + int64(t.SyncInterval)
	return t.clock.Time(at - at%t.grid())
}

// grid returns the ns between due times.
func (t *terms) grid() int64 { return max(1, int64(t.SyncInterval)/2) }

// alone reports whether decisions on a tag must do without Redis, because it does not answer or must not be asked.
func (t *terms) alone(tag int) bool { return t.control.LocalOnly() || t.broken(tag) }

// resetAfter returns the time until no unit counts as used. A negative remaining is debt. ends is the end of the
// window, or the time at which a log is empty; 0: not known. Both are measured by the rough clock, which is up to a tick
// behind, so their result is up to a tick too long.
func (t *terms) resetAfter(r *account.Plan, remaining, ends int64) time.Duration {
	if r.Kind == algo.KindLog {
		switch {
		case remaining >= r.Burst:
			return 0
		case ends > 0:
			return max(0, min(r.Limit.Period, time.Duration(ends-t.clock.Rough())))
		}
		return r.Limit.Period // at most
	}
	if period := time.Duration(r.Window.Period) * time.Microsecond; period > 0 {
		left := period
		if ends > 0 {
			if left = time.Duration(ends - t.clock.Rough()); left <= 0 {
				left += period // the next window has just begun
			}
			left = max(0, min(period, left))
		}
		switch {
		case remaining >= r.Burst:
			return 0
		case r.Window.Sliding:
			return left + period // the counts of this window fade during the next one
		}
		return left + time.Duration((max(0, -remaining-r.Floor)+r.Limit.Rate-1)/r.Limit.Rate)*period // a debt uses up windows that follow
	}
	return r.Refilled(float64(min(remaining, r.Burst)))
}

// fill completes the Result of a call for n units. To a caller that is denied, fewer than n units are left: by the view there may be
// more, but those are in the hands of other processes, or it is their turn to ask.
func (t *terms) fill(res hybridlimit.Result, r *account.Plan, v account.Verdict, n int64) hybridlimit.Result {
	res.Source = v.Source
	res.Remaining = remaining(v)
	if v.Action == account.Admit {
		res.Allowed, res.Granted, res.Delay = true, n, time.Duration(v.Delay)
	} else {
		res.RetryAfter = max(time.Microsecond, time.Duration(v.Retry))
		res.Remaining, v.Left = min(res.Remaining, n-1), min(v.Left, n-1)
	}
	res.ResetAfter = t.resetAfter(r, v.Left, v.Ends)
	return res
}

// found records the debt in the answer to an op. It rounds up, so that no debt is overlooked and a bound in whole
// units still holds. Call it without e.mu: it calls an instrument of the user.
func (t *terms) found(b algo.Bucket, level int64) {
	var debt int64
	if level < 0 {
		debt = (b.Unit - 1 - level) / b.Unit
		t.count.Indebted.Add(1)
		for was := t.count.Worst.Load(); debt > was && !t.count.Worst.CompareAndSwap(was, debt); {
			was = t.count.Worst.Load()
		}
	}
	t.hist.Overshot(debt)
}

// books returns the units that all keys owe, minus units given back, and the units in hand. Both are as of the time
// at which each budget was last taken back. It locks a compact entry without expanding it: 100 000 keys take some ms.
func (t *terms) books() (owed, held int64) {
	now := t.clock.Now()
	t.store.sweep(func(e *entry) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.whole == nil {
			owed += e.compact.Owed()
			held += e.compact.Held(now)
			return
		}
		owed += e.account.Owed()
		held += e.account.Leased()
	})
	return owed, held
}
