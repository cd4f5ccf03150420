package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Outcome is the result that a call would have.
type Outcome string

// The outcomes.
const (
	OutcomeAllow Outcome = "allow"
	OutcomeDeny  Outcome = "deny"
	OutcomeAsk   Outcome = "ask" // the call asks Redis and waits for MaxWait at most; then it is decided without Redis
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

	// Redis is the state of the key in Redis now. Nil: Redis was not asked, or did not answer.
	Redis *hybridlimit.KeyState `json:"redis,omitempty"`
	// RedisError is the reason if Redis was asked and did not answer.
	RedisError string `json:"redis_error,omitempty"`
}

// String returns the Sentence.
func (i Inspection) String() string { return i.Sentence }

// Inspect returns this process's knowledge of a key, and the answer that a call for one unit would get, with the reason
// in a sentence. It is for people on call. It takes no units, changes nothing and counts nothing. It calls only
// Config.LimitFor and Config.Subject. It costs some µs, and holds the key's lock for less than one µs. If memory has no
// room for the key, it costs up to a ms. The answer is for a call without a limit of its own: AllowLimit may get
// another one.
func (l *Limiter) Inspect(_ context.Context, key string) (Inspection, error) {
	i, _, err := l.inspect(key)
	return i, err
}

// InspectRedis is Inspect, and also asks Redis for the key's present state. It ignores the breaker and the switch. It
// costs three messages, and waits for them, HubConfig.SyncTimeout at most. It writes to Redis only if the script is
// missing in the script cache, or the library of HubConfig.Functions is missing. If Redis does not answer, that is not
// an error: RedisError has the reason.
func (l *Limiter) InspectRedis(ctx context.Context, key string) (Inspection, error) {
	i, at, err := l.inspect(key)
	if err != nil || account.Static(i.Limit) {
		return i, err
	}
	bounded, cancel := context.WithTimeout(ctx, l.hub.cfg.SyncTimeout)
	defer cancel()
	k, err := l.hub.runner.Look(bounded, l.terms.InRedis(at), i.Limit)
	l.hub.heart.Messages.Add(3)
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

func (l *Limiter) inspect(key string) (Inspection, keys.Place, error) {
	if err := l.check(key, 1); err != nil {
		return Inspection{}, keys.Place{}, err
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return Inspection{}, keys.Place{}, err
	}
	x := explanation{l: l, at: at}
	x.switched, x.own = l.Switch()
	x.look(key)
	x.now = l.hub.clock.Now()
	x.account.Begin(x.word, x.now)
	x.adapt()
	x.conditions = l.terms.Conditions(x.plan, x.now)
	x.conditions.Broken = l.terms.Alone(at.Tag)
	f := &x.conditions.Fallback
	f.Ends = l.hub.clocks.WindowEnd(at.Tag, x.conditions.Window.Period, x.now)
	f.Share = l.terms.Shares.Copy(key, f.Size, x.now)
	x.crowded = !x.known && l.terms.Crowded(key, x.now)
	x.explain()

	a := &x.account
	i := Inspection{
		Policy: l.cfg.Name, Key: key, Digest: l.hub.names.Digest(l.cfg.Name, key), Limit: x.plan.Limit, Mode: l.Mode().String(),
		LimitFrom: l.control.LimitFrom(key, x.plan), Configured: l.control.State().Configured, Class: l.control.Class.Name, Floor: x.plan.Floor,
		At: x.time(x.now).Round(0), Outcome: x.outcome, Source: x.source,
		Shadow: l.control.Shadow.Load(), Switch: x.switched.String(), SwitchOwn: x.own,
		Breaker: l.hub.state(at.Tag).String(), Slot: at.Tag,
		Fleet: l.party.Size(), FleetKnown: l.party.Known(x.now), Credit: x.conditions.Credit,
		Known: x.known, Leased: a.Held(), Owed: a.Owed(), Fallback: a.FallbackOwed(), Waiting: x.waiting,
		Viewed: a.Viewed(),
	}
	if i.Leased > 0 {
		i.LeaseUntil = x.time(a.LeaseEnds()).Round(0)
	}
	if i.Viewed {
		i.ViewAge = time.Duration(a.ViewAge(x.now))
		i.ViewLeft = floorDiv(a.ViewLevel(), x.unit())
	}
	if x.outcome == OutcomeDeny && x.until > x.now {
		i.DenyUntil = x.time(x.until).Round(0)
	}
	i.Sentence = x.sentence(i)
	return i, at, nil
}

// explanation is a copy of the state of a key, and the outcome that follows from it.
type explanation struct {
	l          *Limiter
	at         keys.Place
	had        *account.Plan   // plan of the key in memory
	standing   *account.Plan   // plan under which the key in memory decides until LimitFor is asked
	plan       *account.Plan   // plan under which a call would be decided
	account    account.Account // a copy
	word       int64           // units of the budget
	conditions account.Conditions
	now        int64
	known      bool
	asks       bool // the next call asks LimitFor
	crowded    bool // the key is not in memory, and memory has no room for it
	waiting    int
	switched   Switch
	own        bool // the switch is the process's own

	outcome Outcome
	source  hybridlimit.Source
	until   int64 // ns: end of a denial; 0: not known
	because string
	owes    bool // because mentions the units owed
}

// look copies the key's entry, if there is one.
func (x *explanation) look(key string) {
	e := x.l.terms.Store.Peek(key)
	if e == nil {
		return
	}
	e.Lock()
	defer e.Unlock()
	if e.Dead() {
		return
	}
	x.known, x.had, x.account, x.word, x.waiting = true, e.Plan.Load(), e.Account, account.UnitsOf(e.Word.Load()), e.Waiters.Len()
	x.standing, x.asks = e.Standing(), e.Asks.Due(x.l.hub.clock.Now())
}

// adapt gives the copy the plan that the next call without a limit would give the key: see keys.Terms.LockBy, and
// exactRange for keys that Redis decides.
func (x *explanation) adapt() {
	x.plan = x.at.Plan
	if !x.known {
		return
	}
	l := x.l
	if !l.control.Exactly(l.control.Plan()) && !l.control.RevertsToOwn(x.had) && !l.control.Outdated(x.had) && (!l.control.Keyed() || !x.asks) {
		x.plan = x.standing
	}
	if x.plan != x.had && !account.Static(x.plan.Limit) {
		x.account.Adapt(x.had, x.plan, x.now)
	}
}

// unit returns the sub-units in one unit of the view. Under a limit that counts nothing, the view is still that of the
// plan before it.
func (x *explanation) unit() int64 {
	if account.Static(x.plan.Limit) && x.known {
		return x.had.Bucket.Unit
	}
	return x.plan.Bucket.Unit
}

func (x *explanation) time(ns int64) time.Time {
	return x.l.hub.clock.Time(ns)
}

func floorDiv(a, b int64) int64 {
	if b == 0 {
		return 0
	}
	if q := a / b; q*b <= a {
		return q
	}
	return a/b - 1
}

func (x *explanation) allow(source hybridlimit.Source, because string, args ...any) {
	x.outcome, x.source, x.because = OutcomeAllow, source, fmt.Sprintf(because, args...)
}

func (x *explanation) deny(source hybridlimit.Source, until int64, because string, args ...any) {
	x.outcome, x.source, x.until, x.because = OutcomeDeny, source, until, fmt.Sprintf(because, args...)
}

func (x *explanation) ask(because string) {
	x.outcome, x.source, x.because = OutcomeAsk, hybridlimit.SourceRedis, because
}

// explain decides a call for one unit and records the reason. If the decision does not depend on the account, explain
// makes it itself, as Limiter.slow does. Otherwise it makes the call on a copy of the account.
func (x *explanation) explain() {
	l, c := x.l, &x.conditions
	switch x.switched {
	case SwitchAllowAll:
		x.allow(hybridlimit.SourceSwitch, "the switch of %s is allow_all: no limit counts", x.who())
		return
	case SwitchDenyAll:
		x.deny(hybridlimit.SourceSwitch, 0, "the switch of %s is deny_all", x.who())
		return
	}
	switch {
	case x.plan.Limit.Algorithm == hybridlimit.AlgUnlimited:
		x.allow(hybridlimit.SourceStatic, "the limit is unlimited")
	case x.plan.Limit.Algorithm == hybridlimit.AlgBlocked:
		x.deny(hybridlimit.SourceStatic, 0, "the limit is blocked: it admits nobody")
	case l.control.Exactly(x.plan):
		x.explainExact()
	case x.crowded && !c.Broken && c.MaxWait >= 0:
		x.ask("memory is full of keys that owe Redis, so that it decides each call for a key that is not there")
	case x.crowded && !c.Broken:
		x.explainCrowded("calls do not wait for Redis (MaxWait is negative)")
	case x.crowded:
		x.explainOverflow(x.whyAlone())
	default:
		trial := x.account
		x.print(trial.Call(c, 1, x.now))
	}
}

// print puts a verdict into words.
func (x *explanation) print(v account.Verdict) {
	a, c, now := &x.account, &x.conditions, x.now
	switch v.Reason {
	case account.InHand:
		x.explainLease(v)
	case account.Proved:
		x.explainProof()
	case account.NotYet:
		x.deny(hybridlimit.SourceDenyCache, a.NextPoll(c), "units are scarce and other processes have their turn first; %s", x.said())
	case account.OnCredit:
		x.allow(hybridlimit.SourceCredit, "up to %s may be admitted before Redis hears of them, and %s", units(a.CreditLeft(c, now)), x.said())
	case account.OnBlindCredit:
		x.allow(hybridlimit.SourceCredit, "up to %s may be admitted before Redis hears of them, and a key that this process does not know is full by now", units(a.CreditLeft(c, now)))
	case account.WaitsForRedis:
		x.ask(x.whyAsk(v.Asks))
	case account.StrictDenies:
		x.deny(hybridlimit.SourceTimeout, 0, "%s, and mode strict admits nothing without its word", x.without(v))
	default:
		x.explainFallback(v)
	}
}

// without returns the reason why Redis is not asked, or why the call does not wait for Redis.
func (x *explanation) without(v account.Verdict) string {
	switch v.Without {
	case account.NeverWaits:
		return "calls do not wait for Redis (MaxWait is negative), and " + x.whyAsk(v.Asks)
	case account.WaitedLong:
		return fmt.Sprintf("Redis has kept calls for this key waiting for %s", long(x.account.StuckFor(x.now)))
	}
	return x.whyAlone()
}

// explainExact explains a decision under a limit for which Redis decides each call.
func (x *explanation) explainExact() {
	r := x.account.Refusal()
	switch {
	case !x.l.control.Exact() && r.Holds(1, x.now):
		x.deny(hybridlimit.SourceDenyCache, min(r.Until, r.Relook), "Redis said that the log has no room for 1 unit")
	case x.conditions.Broken && !x.l.control.Mute() && x.l.hub.breaker(x.at.Tag).RetryIn() == 0:
		x.ask("the breaker lets this call see whether Redis answers again")
	case x.conditions.Broken && x.crowded:
		x.explainOverflow(x.whyAlone())
	case x.conditions.Broken:
		trial := x.account
		x.print(trial.Call(&x.conditions, 1, x.now))
	case x.l.control.Exact():
		x.ask("in mode exact it decides each call")
	default:
		x.ask("under a sliding log it decides each call")
	}
}

// explainLease explains an admission from units in hand.
func (x *explanation) explainLease(v account.Verdict) {
	a, although := &x.account, ""
	if v.Without != account.None {
		although = ", although " + x.without(v)
	}
	if next, ok := a.Slots(); ok {
		x.allow(hybridlimit.SourceLease, "%s of the queue are leased to this process, the next of them served at %s%s", places(a.Held()), x.clock(max(x.now, next)), although)
		return
	}
	x.allow(hybridlimit.SourceLease, "%s in hand, leased until %s%s", are(a.Held()), x.clock(a.LeaseEnds()), although)
}

// explainProof explains a denial that follows from the view.
func (x *explanation) explainProof() {
	a, c := &x.account, &x.conditions
	proved := a.ProvedUntil(c, 1)
	because := x.said()
	if owed := a.OwedLately(); a.ViewLevel() >= x.plan.Bucket.Unit && owed > 0 {
		because += ", and since then " + are(owed) + " owed by this process"
		x.owes = true
	}
	ends := a.DeniedUntil(c)
	if a.Relook() >= proved {
		ends = max(ends, a.RetryAt(c, 1)) // in a sliding window, calls after its end ask Redis, and are denied
	}
	switch until := min(proved, a.Relook()); {
	case a.NextPoll(c) > until:
		because += ", and then other processes have their turn first"
	case a.Relook() < proved:
		because += "; then Redis is asked again, which may have been reset"
	}
	x.deny(hybridlimit.SourceDenyCache, ends, "%s", because)
}

// explainCrowded explains a decision for a key for which memory has no room, while the breaker is closed and calls do
// not wait.
func (x *explanation) explainCrowded(why string) {
	if x.conditions.Mode == account.ModeStrict {
		x.deny(hybridlimit.SourceTimeout, 0, "%s, and mode strict admits nothing without its word", why)
		return
	}
	x.explainOverflow(why)
}

// explainFallback explains a decision of the fallback.
func (x *explanation) explainFallback(v account.Verdict) {
	why, name, c := x.without(v), x.l.control.Fallback(), &x.conditions
	left, most := x.account.FallbackLeft(c, x.now), c.Fallback.Burst
	if v.Reason == account.LocalUnits {
		left++ // the verdict has taken one
	}
	switch v.Reason {
	case account.LocalAlways:
		x.allow(hybridlimit.SourceFallback, "the fallback (%v) decides since %s", name, why)
	case account.LocalNever:
		x.deny(hybridlimit.SourceFallback, 0, "the fallback (%v) decides since %s", name, why)
	case account.LocalUnits:
		x.allow(hybridlimit.SourceFallback, "the fallback (%v) decides since %s: this process has %v of its %d units left", name, why, rounded(left), most)
	default:
		x.deny(hybridlimit.SourceFallback, x.now+v.Retry, "the fallback (%v) decides since %s: this process has %v of its %d units left", name, why, rounded(left), most)
	}
}
