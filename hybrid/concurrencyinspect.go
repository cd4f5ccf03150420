package hybrid

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
)

// ConcurrencyInspection is this process's knowledge of a key of a ConcurrencyLimiter.
type ConcurrencyInspection struct {
	Policy string            `json:"policy"` // the limiter's name
	Key    string            `json:"key"`    // the caller's key
	Digest string            `json:"digest"` // stands for the key in logs
	Limit  hybridlimit.Limit `json:"limit"`  // of the key
	// LimitFrom is the source of Limit: "key" (Settings.Keys or
	// ConcurrencyConfig.LimitFor), or the text of a LimitSource.
	LimitFrom string    `json:"limit_from"`
	Mode      string    `json:"mode"` // of the limiter
	At        time.Time `json:"at"`   // time of the inspection

	// Sentence gives the outcome of a call for one permit and its reason.
	Sentence string `json:"sentence"`
	// Outcome is the outcome for programs.
	Outcome Outcome `json:"outcome"`

	Known   bool  `json:"known"`   // the key is in memory
	Running int64 `json:"running"` // permits that calls of this process use
	Held    int64 `json:"held"`    // permits that Redis has for this process
	Usable  int64 `json:"usable"`  // of Held; calls may use them
	Waiting int64 `json:"waiting"` // permits that waiting calls need
	Free    int64 `json:"free"`    // permits that were left in Redis at its last answer
	Share   int64 `json:"share"`   // permits that the fallback gives this process
	// Learns reports whether Redis grants nothing yet, because it has lost its state
	// and learns the permits of the running calls.
	Learns bool `json:"learns"`

	Member    bool      `json:"member"`         // the process may use the permits that it holds
	Until     time.Time `json:"until,omitzero"` // the end of the membership without another heartbeat
	Shadow    bool      `json:"shadow"`         // the limiter denies no call
	Switch    string    `json:"switch"`         // in force
	SwitchOwn bool      `json:"switch_own"`     // set in this process, not by the fleet
	Breaker   string    `json:"breaker"`        // state for the key's tag
	Slot      int       `json:"slot"`           // the key's tag, from 0, below HubConfig.Tags
	Fleet     int64     `json:"fleet"`          // N
}

// String returns the Sentence.
func (i ConcurrencyInspection) String() string { return i.Sentence }

// Inspect returns this process's knowledge of a key, and the answer that a call for one permit would get, with the
// reason in a sentence. It is for people on call. It acquires nothing, sends nothing, changes nothing and counts
// nothing. It fails as Acquire does.
func (l *ConcurrencyLimiter) Inspect(_ context.Context, key string) (ConcurrencyInspection, error) {
	b := l.base
	if err := b.check(key, 1); err != nil {
		return ConcurrencyInspection{}, err
	}
	most, own, err := l.limitOf(key)
	if err != nil {
		return ConcurrencyInspection{}, err
	}
	h, now := b.hub, b.clock.Now()
	i := ConcurrencyInspection{
		Policy: b.cfg.Name, Key: key, Digest: h.names.Digest(b.cfg.Name, key), Limit: b.limitFor(key), LimitFrom: b.control.LimitFrom(key, b.control.PlanOf(key)),
		Mode: b.Mode().String(), At: b.clock.Time(now).Round(0), Shadow: b.control.Shadow.Load(), Slot: b.terms.Slot(keys.Place{}, key).Tag, Fleet: b.party.Size(),
	}
	if _, listed := b.control.Listed(key); own || listed {
		i.LimitFrom = b.control.KeyFrom(key)
	}
	var s Switch
	s, i.SwitchOwn = b.Switch()
	i.Switch, i.Breaker = s.String(), h.state(i.Slot).String()
	e := &permitEntry{lim: l, limit: most, tag: i.Slot}
	shard, hash := l.shard(key)
	shard.mu.Lock()
	if have := shard.find(hash, key); have != nil {
		e, i.Known = have, true
	}
	c := l.conditions(e, now)
	i.Running, i.Held, i.Usable, i.Waiting, i.Free, i.Learns = e.Used(), e.Booked(), e.Usable(), e.Waiting(), e.Free(), e.Learns(now)
	i.Share, i.Member = l.share(&c), c.Live(now)
	ready := e.Ready(&c, now)
	shard.mu.Unlock()
	if c.Until > 0 {
		i.Until = b.clock.Time(c.Until).Round(0)
	}
	i.explain(s, ready, c.Away, most)
	return i, nil
}

// explain sets the outcome and the sentence. ready reports whether the process holds a permit for the call.
func (i *ConcurrencyInspection) explain(s Switch, ready, away bool, most int64) {
	who := "the fleet"
	if i.SwitchOwn {
		who = "this process"
	}
	set := func(o Outcome, text string, args ...any) {
		i.Outcome, i.Sentence = o, fmt.Sprintf("a call for 1 permit of %s: %s, because ", i.Digest, o)+fmt.Sprintf(text, args...)
	}
	alone := "Redis does not answer"
	switch {
	case i.Learns:
		alone = "Redis has lost its state and learns the permits of the running calls"
	case !i.Member:
		alone = "no heartbeat of this process was answered in time"
	}
	switch {
	case s == SwitchAllowAll:
		set(OutcomeAllow, "the switch of %s is allow_all: no limit counts", who)
	case s == SwitchDenyAll:
		set(OutcomeDeny, "the switch of %s is deny_all", who)
	case most == unlimited:
		set(OutcomeAllow, "the limit is unlimited")
	case most == 0:
		set(OutcomeDeny, "the limit is blocked")
	case ready:
		set(OutcomeAllow, "this process holds %s and its running calls use %d", permitCount(i.Usable), i.Running)
	case away || i.Learns || !i.Member:
		if i.Running < i.Share && i.Waiting == 0 {
			set(OutcomeAllow, "%s, and the fallback gives this process %s, of which running calls use %d", alone, permitCount(i.Share), i.Running)
		} else {
			set(OutcomeDeny, "%s, the fallback gives this process %s, and running calls use %d", alone, permitCount(i.Share), i.Running)
		}
	case i.Waiting > 0:
		set(OutcomeAsk, "other calls wait for %s already, and running calls of this process use %d", permitCount(i.Waiting), i.Running)
	default:
		set(OutcomeAsk, "the running calls of this process use %s, and it holds no other one; Redis had %d free at its last answer", permitCount(i.Running), i.Free)
	}
}

func permitCount(n int64) string {
	if n == 1 {
		return "1 permit"
	}
	return fmt.Sprintf("%d permits", n)
}

// ConcurrencyStats counts the work of a ConcurrencyLimiter since it was made.
type ConcurrencyStats struct {
	Allowed  map[hybridlimit.Source]int64 // calls by source
	Denied   map[hybridlimit.Source]int64 // calls by source
	Admitted int64                        // permits given to calls, without SourceStatic and SourceSwitch

	Running int64 // permits that calls of this process use
	Held    int64 // permits that Redis has for this process; those of the fallback are not among them
	Waiting int64 // permits that waiting calls need
	Keys    int   // keys in memory

	// Ops counts the parts of messages to Redis about one key. They are the limiter's cost for Redis.
	Ops int64

	InvalidLimits int64         // answers of ConcurrencyConfig.LimitFor that were not valid
	Fleet         int64         // N: processes that share the limit
	Member        bool          // the process may use the permits that it holds: its heartbeat was answered in the last 1.8 s
	Breaker       breaker.State // worst state of the hub's breakers
	Switch        Switch        // the switch in force
}

// Decisions returns the sum of Allowed and Denied.
func (s ConcurrencyStats) Decisions() int64 {
	return Stats{Allowed: s.Allowed, Denied: s.Denied}.Decisions()
}

// OpsPerDecision returns Ops per decision; 0 before the first decision.
func (s ConcurrencyStats) OpsPerDecision() float64 { return ratio(s.Ops, s.Decisions()) }

// Stats returns the counts so far. It visits every key in memory.
func (l *ConcurrencyLimiter) Stats() ConcurrencyStats {
	b := l.base
	l.flush()
	of := b.Stats()
	s := ConcurrencyStats{
		Allowed: of.Allowed, Denied: of.Denied, Admitted: of.Admitted, Keys: l.Len(), Ops: of.Ops, InvalidLimits: of.InvalidLimits,
		Fleet: of.Fleet, Member: b.hub.permits.standing.Load().Live(b.clock.Now()), Breaker: of.Breaker, Switch: of.Switch,
	}
	s.Running, s.Held, s.Waiting = l.sums()
	return s
}

// sums returns the permits that calls use, that Redis has for this process, and that waiting calls need.
func (l *ConcurrencyLimiter) sums() (running, held, waiting int64) {
	l.each(func(e *permitEntry) {
		e.shard.mu.Lock()
		running, held, waiting = running+e.Used(), held+e.Booked(), waiting+e.Waiting()
		e.shard.mu.Unlock()
	})
	return running, held, waiting
}
