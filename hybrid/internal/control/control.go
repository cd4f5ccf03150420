// Package control decides which limit, which mode and which switch is in force for a limiter, in one place and in one
// order. A limiter of rates and a limiter of calls in flight share it as a value.
//
// The limit of a key is the first of these that there is:
//
//  1. the limit of the call (AllowLimit);
//  2. the fleet's limit of the key, then that of the settings, then that of Config.LimitFor (keys.go);
//  3. the limit of SetLimit, then of the fleet, then of the settings, then of Config (limits.go).
//
// The switch of the process wins over that of the fleet (switch.go). Mode, fallback and shadow are those of the
// settings, or else of Config (settings.go).
package control

import (
	"fmt"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Config is the part of a limiter's configuration that this package decides by. It is valid.
type Config struct {
	Name          string
	InFlight      bool // the limits count calls in flight
	Leased        bool // the limits are those of leased rates
	Mode          account.Mode
	Fallback      fallback.Kind
	FallbackFloor int64 // of a limiter of rates
	Shadow        bool
	LimitFor      func(key string) hybridlimit.Limit // nil: none

	Names lua.Names
	Clock *clock.Clock
	Log   *tell.Log
}

// Hooks are called after a change, without a lock of this package unless said otherwise.
type Hooks struct {
	Claim     func(hybridlimit.Limit) error // may the limiter have this limit by SetLimit or ClearLimit? Called under a lock
	VoidKeys  func()                        // the limits of keys may have changed: keys in memory ask again
	Relimited func()                        // a limit may have changed; called under a lock
	Switched  func()                        // another switch is in force; called under a lock
	Resumed   func()                        // SwitchLocalOnly has ended
}

// Control decides for one limiter. All its classes share it.
type Control struct {
	Questions Questions
	Closed    atomic.Bool // no more decisions
	// Shadow reports whether no call is denied: by SwitchShadow, or by the settings or Config.
	Shadow atomic.Bool

	cfg       Config
	hooks     Hooks
	views     []*View
	live      atomic.Pointer[live]
	limits    limits
	fleetKeys atomic.Pointer[map[string]hybridlimit.Limit] // by the key in Redis; nil: there never were any
	switches  switches
}

// View is the part of a Control that each class has: the plans of the limits in force.
type View struct {
	*Control
	Class  classes.Class
	plan   atomic.Pointer[account.Plan] // of the limit in force
	canary atomic.Pointer[canary]       // nil: all keys without a limit of their own have the same limit
}

// New returns a view for each class.
func New(limit hybridlimit.Limit, cfg Config, of classes.Set, hooks Hooks) []*View {
	c := &Control{cfg: cfg, hooks: hooks, switches: switches{line: sometimes.Every(tell.LogEvery)}}
	c.limits.configured = limit
	c.live.Store(&live{mode: cfg.Mode, fallback: cfg.Fallback, shadow: cfg.Shadow})
	c.Shadow.Store(cfg.Shadow)
	for _, class := range of {
		c.views = append(c.views, &View{Control: c, Class: class})
	}
	for _, v := range c.views {
		v.plan.Store(v.NewPlan(limit))
	}
	return c.views
}

// Name returns Config.Name.
func (c *Control) Name() string { return c.cfg.Name }

// Check returns an error for a request that cannot be answered. longest is the length of the longest valid key; 0: the
// default.
func (c *Control) Check(key string, n int64, longest int) error {
	if c.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	return adapter.CheckRequest(key, n, longest)
}

// Mode returns the mode in force.
func (c *Control) Mode() account.Mode { return c.live.Load().mode }

// Exact reports whether Redis decides every call, whatever its limit. That never changes.
func (c *Control) Exact() bool { return c.cfg.Mode == account.ModeExact }

// Fallback returns the fallback in force.
func (c *Control) Fallback() fallback.Kind { return c.live.Load().fallback }

// Shadowed turns the denial of a limit in shadow into an admission.
func (c *Control) Shadowed(res hybridlimit.Result, n int64) hybridlimit.Result {
	if c.Shadow.Load() && !res.Allowed {
		res.Allowed, res.Shadowed, res.Granted, res.RetryAfter = true, true, n, 0
	}
	return res
}

// Plan returns the plan of the limit in force.
func (v *View) Plan() *account.Plan { return v.plan.Load() }

// Canary reports whether a part of the keys has another limit of the fleet.
func (v *View) Canary() bool { return v.canary.Load() != nil }

// PlanOf returns the plan of a key without a limit of its own.
func (v *View) PlanOf(key string) *account.Plan {
	if c := v.canary.Load(); c != nil && c.has(v.cfg.Name, key) {
		return c.plan
	}
	return v.plan.Load()
}

// Exactly reports whether Redis decides every call under p. It decides every call of a log, because each call has its
// own time. A limit that counts nothing stands for the limit before it, because LimitFor may still give logs to keys.
func (v *View) Exactly(p *account.Plan) bool {
	return v.Exact() || p.Kind == algo.KindLog || p.Counts == hybridlimit.AlgSlidingLog
}

// Outdated reports whether p is of the limiter's limit, and a change of that limit has replaced it. A change replaces
// both plans of the limiter.
func (v *View) Outdated(p *account.Plan) bool {
	if p.From != account.FromLimiter {
		return false
	}
	if p.Of != nil {
		p = p.Of
	}
	c := v.canary.Load()
	return p != v.plan.Load() && (c == nil || p != c.plan)
}

// RevertsToOwn reports whether the next call without a limit restores the key's own limit. It does if the last limit
// came with a call. It also does if a change has replaced the last limit and the key may have a limit of its own.
func (v *View) RevertsToOwn(p *account.Plan) bool {
	return p.From == account.FromCall || v.Keyed() && v.Outdated(p)
}

// classed reports whether the limiter has classes.
func (c *Control) classed() bool { return len(c.views) > 1 }

// NewPlan returns the plan of a valid limit for the class.
func (v *View) NewPlan(limit hybridlimit.Limit) *account.Plan {
	p := account.NewPlan(limit)
	if v.classed() {
		p = p.Above(v.Class.Floor, v.Class.Upper)
	}
	return p
}

// OfClass returns the part of a limit that the class may use at once.
func (v *View) OfClass(limit hybridlimit.Limit) hybridlimit.Limit {
	if v.Class.Floor == 0 { // a plan need not be made
		return limit
	}
	return classes.Without(limit, v.NewPlan(limit).Floor)
}

// Fits returns an error if the limiter cannot have a limit. Usage under one algorithm has no meaning under another, and
// a limiter with classes has no log. Limits that count nothing fit all.
func (c *Control) Fits(limit hybridlimit.Limit) error { return c.fits(limit).Err("hybrid") }

func (c *Control) fits(limit hybridlimit.Limit) (bad adapter.Violations) {
	have := c.views[0].plan.Load().Counts
	counts := hybridlimit.Limit{Algorithm: have}
	switch {
	case c.cfg.InFlight:
		AddRate(&bad, "Limit", limit)
	case limit.Algorithm == hybridlimit.AlgConcurrent:
		AddInFlight(&bad, "Limit", limit)
	case c.classed() && limit.Algorithm == hybridlimit.AlgSlidingLog:
		bad.Add("Limit.Algorithm", limit.Algorithm, "has no floors, and the limiter has classes")
	case limit.Algorithm != have && !account.Static(limit) && !account.Static(counts):
		bad.Add("Limit.Algorithm", limit.Algorithm, "must be the algorithm of the limiter, "+have.String())
	case c.cfg.Leased && !account.Static(limit):
		AddLeased(&bad, "Limit", limit)
	}
	return bad
}

// InFlight is the violation of a limit of calls in flight where a rate must be.
const InFlight = "counts calls in flight, and this is a rate limiter: use Hub.Concurrency, or NewConcurrency of package local for one process"

// AddInFlight appends the violation of a limit of calls in flight. field names the limit.
func AddInFlight(bad *adapter.Violations, field string, limit hybridlimit.Limit) {
	bad.AddIf(limit.Algorithm == hybridlimit.AlgConcurrent, field+".Algorithm", limit.Algorithm, InFlight)
}

// AddRate appends the violation of a rate where a limit of calls in flight must be. field names the limit.
func AddRate(bad *adapter.Violations, field string, limit hybridlimit.Limit) {
	if limit.Algorithm != hybridlimit.AlgConcurrent && !account.Static(limit) {
		bad.Add(field+".Algorithm", limit.Algorithm, "must be concurrent, unlimited or blocked: this limiter counts calls in flight")
	}
}

// AddLeased appends the violations of a limit whose rate cannot be leased. field names the limit.
func AddLeased(bad *adapter.Violations, field string, limit hybridlimit.Limit) {
	switch {
	case algo.KindOf(limit.Algorithm) != algo.KindBucket || limit.Algorithm == hybridlimit.AlgConcurrent:
		bad.Add(field+".Algorithm", limit.Algorithm, "must be a token bucket, or a leaky bucket as a meter: other rates are not leased")
	case !ratelease.Fits(limit.Rate, limit.Period, limit.BurstSize()):
		bad.Add(field, LimitText(limit), "must have "+ratelease.Range)
	}
}

// LimitText returns a limit in the form that ParseLimit reads: "100/s burst 200".
func LimitText(limit hybridlimit.Limit) string {
	text, err := limit.MarshalText()
	if err != nil {
		return limit.String()
	}
	return string(text)
}

// text returns a name of a number, for String methods.
func text(names []string, of string, n uint8) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", of, n)
}
