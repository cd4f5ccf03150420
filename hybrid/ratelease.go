package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/leased"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// RateLeaseLimiter limits the rate of hot keys in a large fleet with few messages, also if the burst is short. Make one
// with Hub.RateLeases. It is safe for concurrent use.
//
// Redis gives each process a part of the rate for four seconds, by the calls that it had. The process admits calls from
// a bucket of that rate. A key costs at most about one op per process and second, at any load: docs/lab has the figures,
// and docs/choosing.md says for which fleets a Limiter is better. internal/ratelease has the protocol and its proof.
//
// The fleet admits at most Burst + rate·t in any time t, as a token bucket does, except in these cases:
//
//   - the fallback decides (Source is SourceFallback), because Redis does not answer. A process goes on with its leased
//     rate for up to four seconds before;
//   - Redis loses its data, or its clock is put forward: then up to one Burst more, and up to four seconds of the rate
//     if the first process that asks is a new one;
//   - processes have different limits: for four seconds after a change, leases are of the old one.
//
// A lower bound holds too: units that a process leaves unused are back after at most eight seconds. A change of the load
// is followed within some seconds: a process whose calls begin suddenly may wait for a part of the rate for that long.
// With a burst below two units per process, no rate is leased, and a process asks Redis for units about once a second.
type RateLeaseLimiter struct {
	*base
	in *leased.Limiter
}

var (
	_ hybridlimit.Limiter = (*RateLeaseLimiter)(nil)
	_ adapter.Describer   = (*RateLeaseLimiter)(nil)
)

// RateLeaseConfig configures one limiter of leased rates. The zero value of every field except Name is usable.
type RateLeaseConfig struct {
	// Name names the limiter, [A-Za-z0-9_.-]+. Required. Processes that use the same Redis, HubConfig.Prefix and Name
	// share the limit. A hub has one limiter of a name, of whatever type.
	Name string
	// MaxWait bounds the time for which a call waits for Redis: the first call for a key, and a call without units in
	// hand while the bucket in Redis has some. Then the fallback decides. Zero: 20 ms.
	MaxWait time.Duration
	// MaxKeys bounds the number of keys in memory. A new key replaces the one that was used least recently, whose lease
	// ends by itself. Zero: 100 000.
	MaxKeys int
	// MaxKeyBytes is the length of the longest valid key, in bytes. Zero: 512.
	MaxKeyBytes int
	// Fallback decides while Redis does not answer. Zero: FallbackShare.
	Fallback Fallback
	// FallbackFloor is the least burst of FallbackShare, in units: see Config.FallbackFloor. Below 1: 1.
	FallbackFloor int64
	// Shadow makes the limiter decide and count, but deny no call.
	Shadow bool
	// LimitFor returns the limit of a key: a token bucket or a leaky bucket as the limiter has, Unlimited or Blocked. It
	// is called for each call, under no lock, and must be safe for concurrent use. An answer that is the limiter's limit
	// means that the key follows it. A limit that RateLeases would refuse is an error of the call (ErrInvalid). Nil: one
	// limit for all keys.
	LimitFor func(key string) hybridlimit.Limit
	// TagBy maps a key to the text that decides its tag. Keys with one text share a tag, and so a cluster slot. Nil: the
	// key itself.
	TagBy func(key string) string
}

func (c RateLeaseConfig) withDefaults() RateLeaseConfig {
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	c.FallbackFloor = max(c.FallbackFloor, 1)
	return c
}

func (c RateLeaseConfig) violations(limit hybridlimit.Limit) adapter.Violations {
	var bad adapter.Violations
	bad.AddLimit(limit)
	if len(bad) == 0 && !account.Static(limit) {
		control.AddLeased(&bad, "Limit", limit)
	}
	bad.AddIf(!adapter.CheckName(c.Name), "RateLeaseConfig.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(c.MaxWait < 0, "RateLeaseConfig.MaxWait", c.MaxWait, "must not be negative")
	bad.AddIf(c.MaxKeys < 0, "RateLeaseConfig.MaxKeys", c.MaxKeys, "must not be negative")
	bad.AddIf(c.MaxKeyBytes < 0, "RateLeaseConfig.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	bad.AddIf(!fallback.Kind(c.Fallback).Valid(), "RateLeaseConfig.Fallback", c.Fallback, "is not a fallback")
	if c.FallbackFloor > 1 && c.FallbackFloor > limit.BurstSize() {
		bad.Add("RateLeaseConfig.FallbackFloor", c.FallbackFloor, "must not exceed the burst")
	}
	return bad
}

// RateLeases adds a limiter of leased rates to the hub: of a token bucket, a leaky bucket as a meter, Unlimited or
// Blocked, with a rate and a burst of at most 10⁹ units (a second). It is counted in the hub's heartbeat. The names of
// all limiters of a hub are different. A hub with such a limiter has one goroutine more for each tag with a message in
// flight.
//
// The error is a *hybridlimit.InvalidError with all violations of limit and cfg, or wraps hybridlimit.ErrClosed.
func (h *Hub) RateLeases(limit hybridlimit.Limit, cfg RateLeaseConfig) (*RateLeaseLimiter, error) {
	if err := cfg.violations(limit).Err("hybrid"); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	b, views, err := h.prepare(limit, control.Config{
		Name: cfg.Name, Leased: true, Mode: account.ModeStrict, Fallback: fallback.Kind(cfg.Fallback), FallbackFloor: cfg.FallbackFloor,
		Shadow: cfg.Shadow, LimitFor: cfg.LimitFor,
	}, classes.Of(nil), control.Hooks{VoidKeys: func() {}, Resumed: func() {}, Relimited: func() {}, Switched: func() {}})
	if err != nil {
		return nil, err
	}
	b.maxKey, b.party.Sized = cfg.MaxKeyBytes, func(int64) {}
	b.leased = &RateLeaseLimiter{base: b, in: h.leases.New(leased.Config{
		Name: cfg.Name, MaxWait: cfg.MaxWait, MaxKeys: cfg.MaxKeys, MaxKeyBytes: cfg.MaxKeyBytes, Floor: cfg.FallbackFloor, TagBy: cfg.TagBy,
	}, views[0], b.party, b.done)}
	if err := h.enter(b); err != nil {
		return nil, err
	}
	return b.leased, nil
}

// RateLeaseLimiters returns the open limiters of leased rates of the hub, sorted by name.
func (h *Hub) RateLeaseLimiters() []*RateLeaseLimiter {
	var out []*RateLeaseLimiter
	for _, l := range h.all() {
		if l.leased != nil {
			out = append(out, l.leased)
		}
	}
	return out
}

// Allow is AllowN with a cost of 1.
func (l *RateLeaseLimiter) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return l.in.Allow(ctx, key, 1)
}

// AllowN takes n units of key, all or none, from those that this process has in hand. Source is SourceRateLease then. A
// call without units in hand is denied, or asks Redis (SourceRedis): see RateLeaseConfig.MaxWait. Only this wait
// observes ctx: when ctx ends first, nothing is charged and AllowN returns the error of ctx.
//
// An n above the burst is denied for ever. Remaining is the units in hand of this process, and RetryAfter an estimate.
func (l *RateLeaseLimiter) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.in.Allow(ctx, key, n)
}

// Peek returns this process's knowledge of a key: Allowed means that it has a unit in hand, or does not know the key.
// Peek takes nothing, sends nothing and fails as Allow does.
func (l *RateLeaseLimiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	return l.in.Peek(key)
}

// Policy returns the limit that is enforced on key. It calls RateLeaseConfig.LimitFor.
func (l *RateLeaseLimiter) Policy(key string) hybridlimit.Policy {
	limit, _ := l.control.LimitFor(key)
	return hybridlimit.Policy{Name: l.name, Limit: limit, Shadow: l.control.Shadow.Load()}
}

// Len returns the number of keys in memory.
func (l *RateLeaseLimiter) Len() int { return l.in.Len() }

// Reset makes the bucket of a key full in Redis, for the whole fleet. Leased rates stay. It waits for the answer, at most
// for HubConfig.SyncTimeout. Without one it returns ErrUnavailable, and the next exchange of the key resets it.
func (l *RateLeaseLimiter) Reset(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, l.hub.engine.Timeout())
	defer cancel()
	return l.in.Reset(ctx, key)
}

// Close denies all further calls with hybridlimit.ErrClosed, also those that wait. Units that the fallback has admitted
// and that Redis does not know of are lost and counted. Leases end by themselves, within eight seconds. Close is
// idempotent, and its error is always nil.
func (l *RateLeaseLimiter) Close() error {
	l.shut()
	l.hub.forget(l.base)
	return nil
}

// Shutdown gives all leases back to Redis, pays the units owed, and then closes the limiter. It stops waiting when ctx
// ends, or after 5 s if ctx has no deadline. The error then has the number of units that Redis does not know of.
func (l *RateLeaseLimiter) Shutdown(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleWithin)
		defer cancel()
	}
	l.stop()
	err := l.in.Drain(ctx)
	l.hub.leave([]*base{l.base})
	return errors.Join(err, l.Close())
}

// RateLeaseInspection is this process's knowledge of a key of a RateLeaseLimiter.
type RateLeaseInspection struct {
	Policy string            `json:"policy"` // the limiter's name
	Key    string            `json:"key"`    // the caller's key
	Digest string            `json:"digest"` // stands for the key in logs
	Limit  hybridlimit.Limit `json:"limit"`  // of the key
	At     time.Time         `json:"at"`     // time of the inspection

	// Sentence gives the outcome of a call for one unit and its reason.
	Sentence string `json:"sentence"`
	// Outcome is the outcome for programs.
	Outcome Outcome `json:"outcome"`

	Known     bool    `json:"known"`      // the key is in memory
	Rate      float64 `json:"rate"`       // leased, in units a second
	Held      float64 `json:"held"`       // units in hand
	Left      float64 `json:"left"`       // units in Redis, by its last answer and the time since
	Owed      int64   `json:"owed"`       // units admitted by the fallback that Redis does not know of
	Shadow    bool    `json:"shadow"`     // the limiter denies no call
	Switch    string  `json:"switch"`     // in force
	SwitchOwn bool    `json:"switch_own"` // set in this process, not by the fleet
	Breaker   string  `json:"breaker"`    // state for the key's tag
	Slot      int     `json:"slot"`       // the key's tag, from 0, below HubConfig.Tags
	Fleet     int64   `json:"fleet"`      // N
}

// String returns the Sentence.
func (i RateLeaseInspection) String() string { return i.Sentence }

// Inspect returns this process's knowledge of a key, and the answer that a call for one unit would get, with the reason
// in a sentence. It takes nothing, sends nothing, changes nothing and counts nothing. It fails as Allow does.
func (l *RateLeaseLimiter) Inspect(_ context.Context, key string) (RateLeaseInspection, error) {
	k, err := l.in.Look(key)
	if err != nil {
		return RateLeaseInspection{}, err
	}
	h := l.hub
	i := RateLeaseInspection{
		Policy: l.name, Key: key, Digest: h.names.Digest(l.name, key), Limit: k.Limit, At: h.clock.Time(h.clock.Now()).Round(0),
		Known: k.Known, Rate: k.Rate, Held: k.Held, Left: k.Left, Owed: k.Owed, Shadow: l.control.Shadow.Load(),
		Breaker: h.state(k.Tag).String(), Slot: k.Tag, Fleet: l.party.Size(),
	}
	s, own := l.Switch()
	i.Switch, i.SwitchOwn = s.String(), own
	outcome, because := k.Explain(control.Switch(s), own)
	i.Outcome, i.Sentence = Outcome(outcome), fmt.Sprintf("a call for 1 unit of %s: %s, because %s", i.Digest, outcome, because)
	return i, nil
}

// RateLeaseStats counts the work of a RateLeaseLimiter since it was made.
type RateLeaseStats struct {
	Allowed  map[hybridlimit.Source]int64 // decisions by source
	Denied   map[hybridlimit.Source]int64 // decisions by source
	Admitted int64                        // units admitted, without SourceStatic and SourceSwitch
	Rate     float64                      // leased to this process, of all keys, in units a second
	Held     float64                      // units in hand
	Owed     int64                        // units that the fallback has admitted and Redis does not know of
	Paid     int64                        // units of the fallback that Redis has debited
	Dropped  int64                        // units of the fallback that Redis never learns of
	Ops      int64                        // exchanges with Redis: the limiter's cost
	// Overshoot is the largest debt in an answer since the start, in units rounded up. Only units of the fallback make
	// one.
	Overshoot int64
	Keys      int    // keys in memory
	Evicted   uint64 // keys forgotten

	InvalidLimits int64         // answers of RateLeaseConfig.LimitFor that were not valid
	Fleet         int64         // N: processes that share the limit
	Breaker       breaker.State // worst state of the hub's breakers
	Switch        Switch        // the switch in force
}

// Decisions returns the sum of Allowed and Denied.
func (s RateLeaseStats) Decisions() int64 {
	return Stats{Allowed: s.Allowed, Denied: s.Denied}.Decisions()
}

// OpsPerDecision returns Ops per decision; 0 before the first decision.
func (s RateLeaseStats) OpsPerDecision() float64 { return ratio(s.Ops, s.Decisions()) }

// Stats returns the counts so far. It visits every key in memory.
func (l *RateLeaseLimiter) Stats() RateLeaseStats {
	c := &l.in.Count
	allowed, denied, admitted := c.Tally()
	s := RateLeaseStats{
		Allowed: bySource(allowed), Denied: bySource(denied), Admitted: admitted, Paid: c.Acked.Load(), Dropped: c.Dropped.Load(), Ops: c.Ops.Load(),
		Overshoot: c.Worst.Load(), Keys: l.Len(), Evicted: l.in.Evicted.Load(), InvalidLimits: c.BadLimits.Load(),
		Fleet: l.party.Size(), Breaker: l.hub.worst(), Switch: Switch(l.control.Switch()),
	}
	s.Rate, s.Held, s.Owed = l.in.Sums()
	return s
}

// observe reports the values of the limiter.
func (l *RateLeaseLimiter) observe(o metric.Observer, in *tell.Instruments) {
	of, c := with(tell.AttrPolicy.String(l.name)), &l.in.Count
	admitted := l.base.observe(o, in, c, l.mayDecide, of)
	o.ObserveInt64(in.Units, admitted, of(tell.AttrFate.String("admitted")))
	o.ObserveInt64(in.Units, c.Acked.Load(), of(tell.AttrFate.String("paid")))
	o.ObserveInt64(in.Units, c.Dropped.Load(), of(tell.AttrFate.String("dropped")))
	_, held, owed := l.in.Sums()
	o.ObserveInt64(in.Owed, owed, of())
	o.ObserveInt64(in.Held, int64(held), of())
	o.ObserveInt64(in.Evictions, int64(l.in.Evicted.Load()), of())
	o.ObserveInt64(in.Keys, int64(l.Len()), of())
}

// mayDecide returns the results that a source can have: see Limiter.mayDecide.
func (l *RateLeaseLimiter) mayDecide(s hybridlimit.Source) decides {
	switch s {
	case hybridlimit.SourceRateLease, hybridlimit.SourceRedis, hybridlimit.SourceFallback, hybridlimit.SourceSwitch:
		return decides{true, true}
	case hybridlimit.SourceStatic: // a cost above the burst
		return decides{deny: true}
	}
	return decides{}
}
