package control

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file has the limits of single keys.

// TTL is the time for which Redis keeps a fleet's switch or limit without a heartbeat. The heartbeats of all processes
// renew it. So it lives as long as the limiter is in use anywhere, even if the process that set it has ended. A day
// keeps the switch of a fleet that is scaled to zero over a night. A limiter that is gone for good leaves nothing
// behind.
const TTL = 24 * time.Hour

// Questions decides when the limit of a key in memory is looked up again.
type Questions struct {
	Every time.Duration // Config.LimitRefresh
	// Voids counts the calls of Invalidate, InvalidateAll and VoidLimits. An answer is void if the number has changed
	// since its question: the question may be the older of the two.
	Voids atomic.Uint64
}

// Question is a question for the limit of a key, or none.
type Question struct {
	Asked bool
	at    int64 // ns
	voids uint64
}

// Next returns the deadline of a key whose limit is the answer to q.
func (s *Questions) Next(q Question) refresh.Deadline {
	if s.Voids.Load() != q.voids {
		return 0
	}
	return refresh.Next(s.Every, q.at)
}

// Ask returns the plan of a key for a call without a limit. It runs a callback of the user, so call it without any
// lock.
func (v *View) Ask(key string) (p *account.Plan, q Question, err error) {
	if v.Keyed() {
		q = Question{true, v.cfg.Clock.Now(), v.Questions.Voids.Load()}
	}
	p = v.PlanOf(key)
	if limit, own := v.ownLimit(key, p); own {
		if err := errors.Join(limit.Validate(), v.Fits(limit)); err != nil {
			return nil, q, fmt.Errorf("hybrid: Config.LimitFor(%q): %w", key, err)
		}
		p = v.NewPlan(limit)
		p.From = account.FromConfig
	}
	return p, q, nil
}

// Keyed reports whether keys may have limits of their own.
func (c *Control) Keyed() bool {
	return c.cfg.LimitFor != nil || c.live.Load().keyed || c.fleetKeys.Load() != nil
}

// ownLimit returns the limit of a key, and whether it is the key's own. plan is that of a key without one. It runs a
// callback of the user.
func (c *Control) ownLimit(key string, plan *account.Plan) (limit hybridlimit.Limit, own bool) {
	if limit, ok := c.Listed(key); ok {
		return limit, true
	}
	if c.cfg.LimitFor != nil {
		if limit := c.cfg.LimitFor(key); !c.follows(limit, plan) {
			return limit, true
		}
	}
	return plan.Limit, false
}

// LimitFor returns the limit of a key, as a call without a limit would get it, and whether LimitFor has chosen it for
// the key. It runs a callback of the user.
func (v *View) LimitFor(key string) (limit hybridlimit.Limit, chosen bool) {
	plan := v.PlanOf(key)
	if limit, ok := v.Listed(key); ok {
		return limit, false
	}
	return v.ownLimit(key, plan)
}

// Listed returns the limit that the fleet or the settings list for a key.
func (c *Control) Listed(key string) (limit hybridlimit.Limit, ok bool) {
	if limit, ok = c.fleetKey(key); ok {
		return limit, true
	}
	limit, ok = c.live.Load().keys[key]
	return limit, ok
}

// fleetKey returns the fleet's limit of a key.
func (c *Control) fleetKey(key string) (limit hybridlimit.Limit, ok bool) {
	keys := c.fleetKeys.Load()
	if keys == nil || len(*keys) == 0 {
		return limit, false
	}
	limit, ok = (*keys)[c.cfg.Names.Stored(c.cfg.Name, key)]
	return limit, ok
}

// follows reports whether LimitFor means by this limit that the key has none of its own: it is the limiter's limit. The
// configured one also counts while the settings or the fleet replace it, because LimitFor cannot know of these.
func (c *Control) follows(limit hybridlimit.Limit, plan *account.Plan) bool {
	return limit == plan.Limit || c.Source() != FromProcess && limit == c.limits.configured
}

// LimitFrom returns the source of a key's limit, for Inspection.LimitFrom.
func (v *View) LimitFrom(key string, p *account.Plan) string {
	if p.From != account.FromLimiter {
		return v.KeyFrom(key)
	}
	if c := v.canary.Load(); c != nil && (c.plan == p || c.plan == p.Of) {
		return FromFleet.String()
	}
	return v.Source().String()
}

// KeyFrom is LimitFrom for a key with a limit of its own.
func (c *Control) KeyFrom(key string) string {
	if _, ok := c.fleetKey(key); ok {
		return "fleet_key"
	}
	return "key"
}

// VoidLimits makes the next call for each key ask for its limit. Call it without locks.
func (c *Control) VoidLimits() {
	c.Questions.Voids.Add(1)
	c.hooks.VoidKeys()
	c.cfg.Clock.Void()
}

// keyLimits is what a limiter knows of the fleet's limits of its keys. limits.mu guards it.
type keyLimits struct {
	version int64                    // of Redis, as last heard
	at      int64                    // µs of Redis's time of the last answer
	heard   map[string]wire.KeyLimit // by the key in Redis; also those taken back
}

// KeysVersion returns the version of the fleet's limits of keys that the limiter knows.
func (c *Control) KeysVersion() int64 {
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	return c.limits.keys.version
}

// HearKeys notes the fleet's limits of keys as Redis reported them. It returns those that Redis does not know, or knows
// an older limit of. A limit that this process cannot apply counts as none, and is logged.
func (c *Control) HearKeys(heard wire.KeyLimits) (lost []wire.KeyLimit) {
	k := &c.limits.keys
	c.limits.mu.Lock()
	known := maps.Clone(k.heard)
	if known == nil {
		known = map[string]wire.KeyLimit{}
	}
	oldest := heard.Now - TTL.Microseconds()
	if k.at < oldest { // this process has not heard for so long that limits taken back are forgotten
		clear(known)
	}
	of := make(map[string]wire.KeyLimit, len(heard.Of))
	for _, one := range heard.Of {
		of[one.Key] = one
		if mine, ok := known[one.Key]; !ok || one.At >= mine.At || mine.At > heard.Now {
			known[one.Key] = one
		}
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		mine := known[key]
		switch have, ok := of[key]; {
		case mine.Text == "" && mine.At < oldest:
			delete(known, key)
		case !ok || have.At < mine.At:
			lost = append(lost, mine)
		}
	}
	k.version, k.at, k.heard = heard.Version, heard.Now, known
	note := c.applyKeys(known)
	c.limits.mu.Unlock()
	note()
	return lost
}

// applyKeys makes limits of keys count. It returns a function that voids the keys in memory and writes the log lines.
// Call applyKeys under c.limits.mu, and the function without any lock.
func (c *Control) applyKeys(known map[string]wire.KeyLimit) (note func()) {
	have := c.fleetKeys.Load()
	next := map[string]hybridlimit.Limit{}
	var refused error
	odd := ""
	for key, k := range known {
		if k.Text == "" {
			continue
		}
		limit, err := hybridlimit.ParseLimit(k.Text)
		if err == nil {
			err = c.Fits(limit)
		}
		if err != nil {
			refused, odd = err, k.Text
			continue
		}
		next[key] = limit
	}
	if have == nil && len(next) == 0 || have != nil && maps.Equal(*have, next) {
		next = nil
	} else {
		c.fleetKeys.Store(&next)
	}
	name := slog.String("limiter", c.cfg.Name)
	return func() {
		if refused != nil {
			c.cfg.Log.Event(tell.MsgOddLimit, name, slog.String("limit", odd), slog.Any("error", refused))
		}
		if next == nil {
			return
		}
		c.VoidLimits()
		c.hooks.Relimited()
		c.cfg.Log.Event(tell.MsgKeyLimits, name, slog.Int("keys", len(next)))
	}
}
