package keys

import (
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/restore"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/split"
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

// Terms is what the keys of one class of a limiter share: the source of their plans, clocks, counters, and where their
// syncs go. A key knows its terms, and no limiter.
type Terms struct {
	Config
	Name    string // of the limiter
	Clock   *clock.Clock
	Control *control.View // which limit, mode and switch is in force
	Store   *Store
	Count   tell.Counts
	Denials tell.Denials
	Hist    *tell.Histograms // nil: no metrics provider
	Log     *tell.Log

	Engine    *ratesync.Engine
	Names     lua.Names
	Clocks    *member.Clocks
	Pace      *member.Pace
	Paused    *member.Paused
	marks     marks
	Fleet     *census.Census
	Penalties *Penalties       // of all classes of the limiter; nil: none
	Shares    *fallback.Shares // of all classes of the limiter
	Restore   *restore.Asker   // of all classes of the limiter; nil: none
	Split     *split.Keys      // nil: no key is split
	Overflow  *sometimes.Line  // about keys that find no memory, likewise
	Observes  atomic.Bool      // keys are observed: leases live for a second, because those of others come off what is left

	Done   <-chan struct{}     // closed by Close: waiting calls return
	Broken func(tag int) bool  // Redis does not answer
	Lost   func(tag int) int64 // ns at which the last loss of the server of a tag was noticed; 0: never
	Wants  func(mark string)   // other processes hold units of a key that this one was refused
}

// Config is the part of Config that keys decide by.
type Config struct {
	Overshoot     float64
	SyncEvery     int64
	SyncInterval  time.Duration
	MaxWait       time.Duration
	MaxLife       int64 // account.Conditions.MaxLife
	FallbackFloor int64
	LogDenials    time.Duration
	TagBy         func(key string) string
}

// Conditions returns the conditions of an event of a key. Entry.Conditions adds the conditions that depend on the tag.
func (t *Terms) Conditions(p *account.Plan, now int64) (c account.Conditions) {
	t.setConditions(&c, p, now)
	return c
}

// setConditions is conditions for zero Conditions in place. It sets field by field, because a composite literal would
// be made elsewhere and copied.
func (t *Terms) setConditions(c *account.Conditions, p *account.Plan, now int64) {
	t.Pace.Event(p.Full)
	c.Bucket, c.Window, c.Floor, c.Limit = p.Bucket, p.Window, p.Floor, p.Limit
	c.Mode, c.MaxWait, c.Interval = t.Control.Mode(), int64(t.MaxWait), int64(t.SyncInterval)
	c.N, c.Every, c.Adaptive = p.Part.Among(t.Fleet.Accounts()), t.every(), t.SyncEvery == 0
	c.RTT, c.Tick, c.MaxLife = int64(t.Engine.RTT()), int64(Tick), t.MaxLife
	if t.Observes.Load() {
		c.MaxLife = 1
	}
	c.RelookIn = clock.Jitter(account.MaxView)
	c.Closing, c.Behind = t.Control.Closed.Load(), t.Engine.Behind()
	if t.Fleet.Known(now) {
		c.Credit = t.Credit(p, t.Fleet.Accounts())
	}
	c.Blind = account.MayBeFull(p.Full, max(t.Count.Born, p.Began), t.Store.lastEvict.Load(), now)
	c.Fallback = t.Share(p, t.Fleet.Size())
}

// defaultSyncEvery is the least K of an adaptive one.
const defaultSyncEvery = 1000

// every returns K. For an adaptive K it returns the smallest value that K can have.
func (t *Terms) every() int64 {
	if t.SyncEvery == 0 {
		return defaultSyncEvery
	}
	return t.SyncEvery
}

// GivesCredit reports whether the mode uses credit at all.
func (t *Terms) GivesCredit() bool {
	mode := t.Control.Mode()
	return mode == account.ModeDeferred || mode == account.ModeAuto && t.Overshoot > 0
}

// Credit returns C in a fleet of n accounts. A process has credit in one part of a split key, so its C is that of the
// undivided limit, and all parts together admit (N − 1)·C early.
func (t *Terms) Credit(p *account.Plan, n int64) int64 {
	c := p.Undivided().Credit(t.Control.Mode(), t.Overshoot, t.every(), n)
	return min(c, p.Burst+p.Floor)
}

// CreditNow returns C of the limiter's own limit; 0 while N is not known.
func (t *Terms) CreditNow() int64 {
	if !t.Fleet.Known(t.Clock.Now()) {
		return 0
	}
	return t.Credit(t.Control.Plan(), t.Fleet.Accounts())
}

// Share returns the size of a key's share in a fleet of n processes. A process has it whatever part of a split key it
// uses.
func (t *Terms) Share(p *account.Plan, n int64) account.Fallback {
	return p.Undivided().Fallback(t.Control.Fallback(), t.FallbackFloor, n)
}

// lazily returns the due time of a sync that can wait for T. Due times lie on a grid of T/2, so that many keys share
// a message.
func (t *Terms) lazily(now time.Time) time.Time {
	at := t.Clock.At(now) + int64(t.SyncInterval)
	return t.Clock.Time(at - at%t.grid())
}

// grid returns the ns between due times.
func (t *Terms) grid() int64 { return max(1, int64(t.SyncInterval)/2) }

// Alone reports whether decisions on a tag must do without Redis, because it does not answer or must not be asked.
func (t *Terms) Alone(tag int) bool { return t.Control.LocalOnly() || t.Broken(tag) }

// ResetAfter returns the time until no unit counts as used. A negative remaining is debt. ends is the end of the
// window, or the time at which a log is empty; 0: not known. Both are measured by the rough clock, which is up to a
// tick behind, so their result is up to a tick too long.
func (t *Terms) ResetAfter(r *account.Plan, remaining, ends int64) time.Duration {
	if r.Kind == algo.KindLog {
		switch {
		case remaining >= r.Burst:
			return 0
		case ends > 0:
			return max(0, min(r.Limit.Period, time.Duration(ends-t.Clock.Rough())))
		}
		return r.Limit.Period // at most
	}
	if period := time.Duration(r.Window.Period) * time.Microsecond; period > 0 {
		left := period
		if ends > 0 {
			if left = time.Duration(ends - t.Clock.Rough()); left <= 0 {
				left += t.follows(r.Window, ends) // the next window has just begun
			}
			left = max(0, min(period, left))
		}
		switch {
		case remaining >= r.Burst:
			return 0
		case r.Window.Sliding:
			return left + period // the counts of this window fade during the next one
		}
		debt := max(0, -remaining-r.Floor)
		if debt == 0 {
			return left
		}
		return left + time.Duration((debt+r.Limit.Rate-1)/r.Limit.Rate)*t.follows(r.Window, ends) // a debt uses up windows that follow
	}
	return r.Refilled(float64(min(remaining, r.Burst)))
}

// Fill completes the Result of a call for n units. To a caller that is denied, fewer than n units are left: by the view
// there may be more, but those are in the hands of other processes, or it is their turn to ask.
func (t *Terms) Fill(res hybridlimit.Result, r *account.Plan, v account.Verdict, n int64) hybridlimit.Result {
	res.Source = v.Source
	res.Remaining = Remaining(v)
	if v.Action == account.Admit {
		res.Allowed, res.Granted, res.Delay = true, n, time.Duration(v.Delay)
	} else {
		res.RetryAfter = max(time.Microsecond, time.Duration(v.Retry))
		res.Remaining, v.Left = min(res.Remaining, n-1), min(v.Left, n-1)
	}
	res.ResetAfter = t.ResetAfter(r, v.Left, v.Ends)
	return res
}

// Found records the debt in the answer to an op. It rounds up, so that no debt is overlooked and a bound in whole
// units still holds. Call it without e.mu: it calls an instrument of the user.
func (t *Terms) Found(b algo.Bucket, level int64) {
	var debt int64
	if level < 0 {
		debt = (b.Unit - 1 - level) / b.Unit
		t.Count.Debt(debt)
	}
	t.Hist.Overshot(debt)
}

// Books returns the units that all keys owe, minus units given back, and the units in hand. Both are as of the time
// at which each budget was last taken back. It locks a compact entry without expanding it: 100 000 keys take some ms.
func (t *Terms) Books() (owed, held int64) {
	now := t.Clock.Now()
	t.Store.Sweep(func(e *Entry) {
		e.Mu.Lock()
		defer e.Mu.Unlock()
		if e.whole == nil {
			owed += e.compact.Owed()
			held += e.compact.Held(now)
			return
		}
		owed += e.Account.Owed()
		held += e.Account.Leased()
	})
	return owed, held
}
