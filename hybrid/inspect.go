package hybrid

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/explain"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

// Outcome is the result that a call would have.
type Outcome string

// The outcomes.
const (
	OutcomeAllow = Outcome(explain.Allow)
	OutcomeDeny  = Outcome(explain.Deny)
	OutcomeAsk   = Outcome(explain.Ask) // the call asks Redis and waits for MaxWait at most; then it is decided without Redis
)

// Inspection has this process's knowledge of a key, and the answer that a call for one unit would get. Durations in
// JSON are nanoseconds. It contains the key, so keep it where keys may be seen.
type Inspection struct {
	Policy string            `json:"policy"` // Config.Name
	Key    string            `json:"key"`    // as passed to Inspect
	Digest string            `json:"digest"` // stands for the key in logs: see Config.LogDenials
	Limit  hybridlimit.Limit `json:"limit"`  // of the key
	// LimitFrom is the source of Limit: "fleet_key" (Hub.SetFleetKeyLimit), "key" (Settings.Keys or Config.LimitFor),
	// or the text of a LimitSource.
	LimitFrom string `json:"limit_from"`
	// Part is the part of a split key that this process uses, from 1. The units left by the view, Leased, Owed and Slot
	// are of the part. 0: the key is whole. See Config.Split.
	Part int `json:"part,omitempty"`
	// Parts is the number of parts of a split key. 0: the key is whole.
	Parts int `json:"parts,omitempty"`
	// Configured is the limit that New or Hub.Limiter received, which other limits may replace.
	Configured hybridlimit.Limit `json:"configured"`
	Mode       string            `json:"mode"` // of the limiter
	// Class is the class of the limiter that was asked. Units left are those of the class. Empty: there are no classes.
	Class string `json:"class,omitempty"`
	// Floor is the number of units that the class leaves to others.
	Floor int64     `json:"floor,omitempty"`
	At    time.Time `json:"at"` // time of the inspection

	// Sentence gives the outcome of the call and its reason.
	Sentence string `json:"sentence"`
	// Outcome is the outcome for programs.
	Outcome Outcome `json:"outcome"`
	// Source is the source of the decision; SourceRedis if Redis is asked.
	Source hybridlimit.Source `json:"-"`
	// DenyUntil is the end of the denial, as far as this process knows. Zero: the
	// call is not denied, or the end is unknown.
	DenyUntil time.Time `json:"deny_until,omitzero"`

	Shadow     bool   `json:"shadow"`      // the limiter denies no call
	Switch     string `json:"switch"`      // in force
	SwitchOwn  bool   `json:"switch_own"`  // set in this process, not by the fleet
	Breaker    string `json:"breaker"`     // state for the key's tag
	Slot       int    `json:"slot"`        // the key's tag, from 0, below HubConfig.Tags
	Fleet      int64  `json:"fleet"`       // N
	FleetKnown bool   `json:"fleet_known"` // N may be trusted for credit
	Credit     int64  `json:"credit"`      // C of the key's limit

	Known      bool      `json:"known"`                // the key is in memory
	Leased     int64     `json:"leased"`               // units in hand
	LeaseUntil time.Time `json:"lease_until,omitzero"` // when the first of them expire
	Owed       int64     `json:"owed"`                 // units admitted less units given back that Redis has not acknowledged
	Fallback   int64     `json:"fallback"`             // units of Owed that the fallback admitted
	Waiting    int       `json:"waiting"`              // calls that wait for Redis

	Viewed   bool          `json:"viewed"`      // this process has an answer of Redis about the key: the view
	ViewLeft int64         `json:"view_left"`   // units left by the view; negative: debt, or units of the floor that are used
	ViewAge  time.Duration `json:"view_age_ns"` // time since the view was received

	// Redis is the state of the key in Redis now, of a split key of all its parts together. Nil: Redis was not asked,
	// or did not answer.
	Redis *hybridlimit.KeyState `json:"redis,omitempty"`
	// RedisError is the reason if Redis was asked and did not answer.
	RedisError string `json:"redis_error,omitempty"`
}

// String returns the Sentence.
func (i Inspection) String() string { return i.Sentence }

// Inspect returns this process's knowledge of a key, and the answer that a call for one unit would get, with the reason
// in a sentence. It is for people on call. It takes no units, changes nothing and counts nothing. It calls only
// Config.LimitFor and Config.TagBy. It costs some µs, and holds the key's lock for less than one µs. If memory has no
// room for the key, it costs up to a ms. The answer is for a call without a limit of its own: AllowLimit may get
// another one.
func (l *Limiter) Inspect(_ context.Context, key string) (Inspection, error) {
	i, _, err := l.inspect(key)
	return i, err
}

// InspectRedis is Inspect, and also asks Redis for the key's present state. It ignores the breaker and the switch. It
// costs three messages for each part of the key, and waits for them, HubConfig.SyncTimeout at most. It writes to Redis
// only if the script is missing in the script cache, or the library of HubConfig.Functions is missing. If Redis does
// not answer, that is not an error: RedisError has the reason.
func (l *Limiter) InspectRedis(ctx context.Context, key string) (Inspection, error) {
	i, at, err := l.inspect(key)
	if err != nil || account.Static(i.Limit) {
		return i, err
	}
	bounded, cancel := context.WithTimeout(ctx, l.hub.engine.Timeout())
	defer cancel()
	k, err := look(bounded, l, at)
	switch {
	case err == nil:
		i.Redis = &k
		i.Sentence += "; Redis now: " + k.String()
	case ctx.Err() != nil:
		return Inspection{}, ctx.Err()
	case errors.Is(err, hybridlimit.ErrClosed):
		return Inspection{}, err
	default:
		i.RedisError = err.Error()
		i.Sentence += "; Redis, asked now, did not answer"
	}
	return i, nil
}

// look reads the state of a key in Redis, of a split key that of all parts.
func look(ctx context.Context, l *Limiter, at keys.Place) (hybridlimit.KeyState, error) {
	var states []hybridlimit.KeyState
	for _, part := range l.terms.Parts(at) {
		k, err := l.hub.runner.Look(ctx, l.terms.InRedis(part), part.Plan.Limit)
		l.hub.heart.Messages.Add(3)
		if err != nil {
			return k, err
		}
		states = append(states, k)
	}
	if len(states) == 1 {
		return states[0], nil
	}
	return parts.Join(at.Plan.Undivided().Limit, states), nil
}

func (l *Limiter) inspect(key string) (Inspection, keys.Place, error) {
	if err := l.control.Check(key, 1, l.maxKey); err != nil {
		return Inspection{}, keys.Place{}, err
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return Inspection{}, keys.Place{}, err
	}
	x := explain.Of(&l.terms, at, key, func(tag int) int64 { return int64(l.hub.breaker(tag).RetryIn()) })
	a := &x.Account
	i := Inspection{
		Policy: l.cfg.Name, Key: key, Digest: l.hub.names.Digest(l.cfg.Name, key), Limit: x.Plan.Undivided().Limit, Mode: l.Mode().String(),
		Part: int(x.Plan.Part.Nth), Parts: int(x.Plan.Part.Of),
		LimitFrom: l.control.LimitFrom(key, x.Plan), Configured: l.control.State().Configured, Class: l.control.Class.Name, Floor: x.Plan.Floor,
		At: l.clock.Time(x.Now).Round(0), Outcome: Outcome(x.Outcome), Sentence: x.Sentence, Source: x.Source,
		Shadow: l.control.Shadow.Load(), Switch: x.Switch.String(), SwitchOwn: x.SwitchOwn,
		Breaker: l.hub.state(at.Tag).String(), Slot: at.Tag,
		Fleet: l.party.Size(), FleetKnown: l.party.Known(x.Now), Credit: x.Conditions.Credit,
		Known: x.Known, Leased: a.Held(), Owed: a.Owed(), Fallback: a.FallbackOwed(), Waiting: x.Waiting,
		Viewed: a.Viewed(),
	}
	if i.Leased > 0 {
		i.LeaseUntil = l.clock.Time(a.LeaseEnds()).Round(0)
	}
	if i.Viewed {
		i.ViewAge = time.Duration(a.ViewAge(x.Now))
		i.ViewLeft = explain.FloorDiv(a.ViewLevel(), x.Unit())
	}
	if x.Outcome == explain.Deny && x.Until > x.Now {
		i.DenyUntil = l.clock.Time(x.Until).Round(0)
	}
	return i, at, nil
}
