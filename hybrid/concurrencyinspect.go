package hybrid

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
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
	k, err := l.in.Look(key)
	if err != nil {
		return ConcurrencyInspection{}, err
	}
	h, now := l.hub, l.hub.clock.Now()
	limit, _ := l.control.LimitFor(key)
	i := ConcurrencyInspection{
		Policy: l.name, Key: key, Digest: h.names.Digest(l.name, key), Limit: limit, LimitFrom: l.control.LimitFrom(key, l.control.PlanOf(key)),
		Mode: l.Mode().String(), At: h.clock.Time(now).Round(0), Shadow: l.control.Shadow.Load(), Slot: k.Tag, Fleet: l.party.Size(),
		Known: k.Known, Running: k.Running, Held: k.Held, Usable: k.Usable, Waiting: k.Waiting, Free: k.Free, Share: k.Share, Learns: k.Learns,
		Member: k.Member, Breaker: h.state(k.Tag).String(),
	}
	if _, listed := l.control.Listed(key); k.Own || listed {
		i.LimitFrom = l.control.KeyFrom(key)
	}
	if k.Until > 0 {
		i.Until = h.clock.Time(k.Until).Round(0)
	}
	s, own := l.Switch()
	i.Switch, i.SwitchOwn = s.String(), own
	outcome, because := k.Explain(control.Switch(s), own)
	i.Outcome, i.Sentence = Outcome(outcome), fmt.Sprintf("a call for 1 permit of %s: %s, because %s", i.Digest, outcome, because)
	return i, nil
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
	l.in.Flush()
	c := &l.in.Count
	allowed, denied, admitted := c.Tally()
	s := ConcurrencyStats{
		Allowed: bySource(allowed), Denied: bySource(denied), Admitted: admitted, Keys: l.Len(), Ops: c.Ops.Load(), InvalidLimits: c.BadLimits.Load(),
		Fleet: l.party.Size(), Member: l.hub.permits.Live(), Breaker: l.hub.worst(), Switch: Switch(l.control.Switch()),
	}
	s.Running, s.Held, s.Waiting = l.in.Sums()
	return s
}

// observe reports the values of the limiter.
func (l *ConcurrencyLimiter) observe(o metric.Observer, in *tell.Instruments) {
	of := with(tell.AttrPolicy.String(l.name))
	l.base.observe(o, in, &l.in.Count, l.mayDecide, of)
	running, held, waiting := l.in.Sums()
	o.ObserveInt64(in.Running, running, of())
	o.ObserveInt64(in.Booked, held, of())
	o.ObserveInt64(in.Waiting, waiting, of())
	o.ObserveInt64(in.Keys, int64(l.Len()), of())
}

// mayDecide returns the results that a source can have: see Limiter.mayDecide.
func (l *ConcurrencyLimiter) mayDecide(s hybridlimit.Source) decides {
	switch s {
	case hybridlimit.SourceLease:
		return decides{allow: true}
	case hybridlimit.SourceRedis, hybridlimit.SourceFallback, hybridlimit.SourceSwitch:
		return decides{true, true}
	case hybridlimit.SourceTimeout, hybridlimit.SourceStatic:
		return decides{deny: true}
	}
	return decides{}
}
