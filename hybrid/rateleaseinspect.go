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
