package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Outcome is what would become of a call.
type Outcome string

// The outcomes.
const (
	OutcomeAllow Outcome = "allow"
	OutcomeDeny  Outcome = "deny"
	OutcomeAsk   Outcome = "ask" // Redis is asked, for MaxWait at most; then the call is decided without it
)

// Inspection is what this process knows of a key, and what it would tell a call
// for one unit. Durations in JSON are nanoseconds. It holds the key: keep it
// where keys may be seen.
type Inspection struct {
	Policy string            `json:"policy"` // Config.Name
	Key    string            `json:"key"`    // as it was asked for
	Digest string            `json:"digest"` // stands for the key in logs: see Config.LogDenials
	Limit  hybridlimit.Limit `json:"limit"`  // of the key
	Mode   string            `json:"mode"`   // of the limiter
	At     time.Time         `json:"at"`     // when it was looked at

	// Sentence says what would become of the call, and why.
	Sentence string `json:"sentence"`
	// Outcome is the same for programs.
	Outcome Outcome `json:"outcome"`
	// Source is who would decide; SourceRedis where Redis is asked.
	Source hybridlimit.Source `json:"-"`
	// DenyUntil is until when the call is denied, as far as this process knows.
	// Zero: it is not, or nobody knows.
	DenyUntil time.Time `json:"deny_until,omitzero"`

	Shadow     bool   `json:"shadow"`      // nobody is denied
	Switch     string `json:"switch"`      // in force
	SwitchOwn  bool   `json:"switch_own"`  // it is this process's own
	Breaker    string `json:"breaker"`     // of the key's slot
	Slot       int    `json:"slot"`        // below HubConfig.Tags
	Fleet      int64  `json:"fleet"`       // N
	FleetKnown bool   `json:"fleet_known"` // N may be trusted for credit
	Credit     int64  `json:"credit"`      // C of the key's limit

	Known      bool      `json:"known"`                // there is something of the key in memory
	Leased     int64     `json:"leased"`               // units in hand
	LeaseUntil time.Time `json:"lease_until,omitzero"` // when the first of them are lost
	Owed       int64     `json:"owed"`                 // units admitted that Redis has not acknowledged, less what is given back
	Fallback   int64     `json:"fallback"`             // of these, what the fallback admitted
	Waiting    int       `json:"waiting"`              // calls that wait for Redis

	Viewed   bool          `json:"viewed"`      // Redis has said something
	ViewLeft int64         `json:"view_left"`   // units, as of then; negative: debt
	ViewAge  time.Duration `json:"view_age_ns"` // since it was received

	// Redis is what it has now. Nil: it was not asked, or did not answer.
	Redis *hybridlimit.KeyState `json:"redis,omitempty"`
	// RedisError says why it did not.
	RedisError string `json:"redis_error,omitempty"`
}

// String is the Sentence.
func (i Inspection) String() string { return i.Sentence }

// Inspect says what this process knows of a key, and what it would tell a call
// for one unit, with the reason in a sentence: for people on call. It takes
// nothing, changes nothing, counts nothing, and asks nobody but LimitFor and
// Subject. It costs some µs, and the key's lock for a part of one; of a key that
// finds memory full up to a ms. A call that brings its own limit (AllowLimit) may
// be told otherwise: Inspect speaks of one that brings none.
func (l *Limiter) Inspect(_ context.Context, key string) (Inspection, error) {
	i, _, err := l.inspect(key)
	return i, err
}

// InspectRedis is Inspect, and says what Redis has of the key now, whatever the
// breaker and the switch say. It costs three messages, for which it waits,
// HubConfig.SyncTimeout at most, and writes nothing but the library of
// HubConfig.Functions, or the script into the cache of scripts, where it is
// missing. A Redis that does not answer is no error, but said in RedisError.
func (l *Limiter) InspectRedis(ctx context.Context, key string) (Inspection, error) {
	i, at, err := l.inspect(key)
	if err != nil || account.Static(i.Limit) {
		return i, err
	}
	bounded, cancel := context.WithTimeout(ctx, l.hub.cfg.SyncTimeout)
	defer cancel()
	k, err := l.hub.runner.Look(bounded, at.key, i.Limit)
	l.hub.beats.Add(3)
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

func (l *Limiter) inspect(key string) (Inspection, place, error) {
	if err := l.check(key, 1); err != nil {
		return Inspection{}, place{}, err
	}
	at, err := l.place(key)
	if err != nil {
		return Inspection{}, place{}, err
	}
	x := explanation{l: l, at: at, hash: l.store.hash(key)}
	x.switched, x.own = l.Switch()
	x.look(key)
	x.now = l.hub.clock.Now()
	x.account.Begin(x.word, x.now)
	x.adapt()
	x.conditions = l.conditions(x.plan, x.now)
	x.conditions.Broken = l.alone(at.tag)
	x.conditions.Fallback.Ends = l.hub.clocks.windowEnd(at.tag, x.conditions.Window.Period, x.now)
	x.crowded = !x.known && l.crowded(key, x.now)
	x.explain()

	a := &x.account
	i := Inspection{
		Policy: l.cfg.Name, Key: key, Digest: l.hub.names.Digest(l.cfg.Name, key), Limit: x.plan.Limit, Mode: l.cfg.Mode.String(),
		At: x.time(x.now).Round(0), Outcome: x.outcome, Source: x.source,
		Shadow: l.switches.shadow.Load(), Switch: x.switched.String(), SwitchOwn: x.own,
		Breaker: l.hub.state(at.tag).String(), Slot: at.tag,
		Fleet: x.conditions.N, FleetKnown: l.fleet.Known(x.now), Credit: x.conditions.Credit,
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

// explanation is a copy of what there is of a key, and what follows from it.
type explanation struct {
	l          *Limiter
	at         place
	had        *account.Plan   // of the key in memory
	plan       *account.Plan   // under which a call would be decided
	account    account.Account // a copy
	word       int64           // units of the word
	conditions account.Conditions
	now        int64
	known      bool
	crowded    bool // it is not, and there is no memory for it
	hash       uint64
	waiting    int
	switched   Switch
	own        bool // the switch is the process's own

	outcome Outcome
	source  hybridlimit.Source
	until   int64 // ns: of a denial; 0: not known
	because string
	owes    bool // because says what is owed
}

// look copies what is in memory.
func (x *explanation) look(key string) {
	e := x.l.store.peek(key)
	if e == nil {
		return
	}
	e.lock()
	defer e.unlock()
	if e.dead {
		return
	}
	x.known, x.had, x.account, x.word, x.waiting = true, e.plan.Load(), e.account, account.UnitsOf(e.word.Load()), e.waiters.Len()
}

// adapt gives the copy the plan that the next call gives the key, if it brings no limit: see lockBy, and exactRange for keys that
// Redis decides.
func (x *explanation) adapt() {
	x.plan = x.at.plan
	if !x.known {
		return
	}
	l := x.l
	if !l.exactly(l.plan.Load()) && !l.revertsToOwn(x.had) && !l.outdated(x.had) {
		x.plan = x.had
	}
	if x.plan != x.had && !account.Static(x.plan.Limit) {
		x.account.Adapt(x.had, x.plan, l.share(x.had, l.fleet.Size()), x.now)
	}
}

// unit is that of the view: of a limit that counts nothing, the one before it.
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

// explain is the decision on a call for one unit, with its reason. What comes before the account is decided here, as in
// Limiter.slow; the rest is a call on a copy.
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
	case l.exactly(x.plan):
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

// without is why Redis is not asked, or not waited for.
func (x *explanation) without(v account.Verdict) string {
	switch v.Without {
	case account.NeverWaits:
		return "calls do not wait for Redis (MaxWait is negative), and " + x.whyAsk(v.Asks)
	case account.WaitedLong:
		return fmt.Sprintf("Redis has kept calls for this key waiting for %s", long(x.account.StuckFor(x.now)))
	}
	return x.whyAlone()
}

// explainExact is for limits of which Redis decides each call.
func (x *explanation) explainExact() {
	r := x.account.Refusal()
	switch {
	case x.l.cfg.Mode != ModeExact && r.Holds(1, x.now):
		x.deny(hybridlimit.SourceDenyCache, min(r.Until, r.Relook), "Redis said that the log has no room for 1 unit")
	case x.conditions.Broken && x.crowded:
		x.explainOverflow(x.whyAlone())
	case x.conditions.Broken:
		trial := x.account
		x.print(trial.Call(&x.conditions, 1, x.now))
	case x.l.cfg.Mode == ModeExact:
		x.ask("in mode exact it decides each call")
	default:
		x.ask("under a sliding log it decides each call")
	}
}

// explainLease is for units in hand.
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

// explainProof is for a denial that Redis has proved.
func (x *explanation) explainProof() {
	a, c := &x.account, &x.conditions
	proved := a.ProvedUntil(c, 1)
	because := x.said()
	if owed := a.OwedLately(); a.ViewLevel() >= x.plan.Bucket.Unit && owed > 0 {
		because += ", and since then " + are(owed) + " owed by this process"
		x.owes = true
	}
	switch until := min(proved, a.Relook()); {
	case a.NextPoll(c) > until:
		because += ", and then other processes have their turn first"
	case a.Relook() < proved:
		because += "; then Redis is asked again, which may have been reset"
	}
	x.deny(hybridlimit.SourceDenyCache, a.DeniedUntil(c), "%s", because)
}

// explainCrowded is for a key that finds no memory, while the breaker is closed and calls do not wait.
func (x *explanation) explainCrowded(why string) {
	if x.conditions.Mode == account.ModeStrict {
		x.deny(hybridlimit.SourceTimeout, 0, "%s, and mode strict admits nothing without its word", why)
		return
	}
	x.explainOverflow(why)
}

// explainFallback is for decisions of the fallback.
func (x *explanation) explainFallback(v account.Verdict) {
	why, name, c := x.without(v), x.l.cfg.Fallback, &x.conditions
	left, most := x.account.FallbackLeft(c, x.now), c.Fallback.Most()
	switch v.Reason {
	case account.LocalAlways:
		x.allow(hybridlimit.SourceFallback, "the fallback (%v) decides since %s", name, why)
	case account.LocalNever:
		x.deny(hybridlimit.SourceFallback, 0, "the fallback (%v) decides since %s", name, why)
	case account.LocalUnits:
		x.allow(hybridlimit.SourceFallback, "the fallback (%v) decides since %s: this process has %.4g of its %.4g units left", name, why, left, most)
	default:
		x.deny(hybridlimit.SourceFallback, x.now+v.Retry, "the fallback (%v) decides since %s: this process has %.4g of its %.4g units left", name, why, left, most)
	}
}
