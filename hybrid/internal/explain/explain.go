// Package explain foretells the answer that a call for one unit of a key would get, and says the reason in a sentence.
// explain.go decides, and text.go has the words. It reads a copy of the key, and changes nothing.
package explain

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Outcome is the result that a call would have.
type Outcome string

// The outcomes.
const (
	Allow Outcome = "allow"
	Deny  Outcome = "deny"
	Ask   Outcome = "ask" // Redis decides
)

// Explanation is a copy of the state of a key, and the outcome that follows from it.
type Explanation struct {
	Plan       *account.Plan   // under which a call would be decided
	Account    account.Account // a copy
	Conditions account.Conditions
	Now        int64
	Known      bool // the key is in memory
	Waiting    int  // calls
	Switch     control.Switch
	SwitchOwn  bool // the switch is the process's own

	Outcome  Outcome
	Source   hybridlimit.Source
	Until    int64 // ns: end of a denial; 0: not known
	Sentence string

	terms    *keys.Terms
	control  *control.View
	retryIn  func(tag int) int64 // ns until the breaker of a tag lets a call try; 0: now
	tag      int
	had      *account.Plan // plan of the key in memory
	standing *account.Plan // plan under which the key in memory decides until LimitFor is asked
	word     int64         // units of the budget
	asks     bool          // the next call asks LimitFor
	paused   int64         // ns for which the key is paused still
	crowded  bool          // the key is not in memory, and memory has no room for it
	because  string
	owes     bool // because mentions the units owed
}

// Of explains a call for one unit of a key. retryIn returns the ns until the breaker of a tag lets a call try Redis.
func Of(t *keys.Terms, at keys.Place, key string, retryIn func(tag int) int64) *Explanation {
	x := &Explanation{terms: t, control: t.Control, retryIn: retryIn, tag: at.Tag}
	x.Switch, x.SwitchOwn = t.Control.SwitchOwn()
	x.look(key)
	x.Now = t.Clock.Now()
	x.Account.Begin(x.word, x.Now)
	x.adapt(at.Plan)
	x.Conditions = t.Conditions(x.Plan, x.Now)
	x.Conditions.Broken = t.Alone(at.Tag)
	f := &x.Conditions.Fallback
	x.Conditions.Window = t.WindowAt(at.Tag, x.Plan, x.Now)
	f.Ends = t.WindowEnd(at.Tag, x.Conditions.Window, x.Now)
	f.Share = t.Shares.Copy(key, f.Size, x.Now)
	x.paused = t.PausedFor(key, x.Now)
	x.crowded = !x.Known && t.Crowded(key, x.Now)
	x.explain()
	x.Sentence = x.sentence()
	return x
}

// look copies the key's entry, if there is one.
func (x *Explanation) look(key string) {
	e := x.terms.Store.Peek(key)
	if e == nil {
		return
	}
	e.Lock()
	defer e.Unlock()
	if e.Dead() {
		return
	}
	x.Known, x.had, x.Account, x.word, x.Waiting = true, e.Plan.Load(), e.Account, account.UnitsOf(e.Word.Load()), e.Waiters.Len()
	x.standing, x.asks = e.Standing(), e.Asks.Due(x.terms.Clock.Now())
}

// adapt gives the copy the plan that the next call without a limit would give the key: see keys.Terms.LockBy, and
// direct.Asker.UpTo for keys that Redis decides.
func (x *Explanation) adapt(plan *account.Plan) {
	x.Plan = plan
	if !x.Known {
		return
	}
	if c := x.control; !c.Exactly(c.Plan()) && !c.RevertsToOwn(x.had) && !c.Outdated(x.had) && (!c.Keyed() || !x.asks) {
		x.Plan = x.standing
	}
	if x.Plan != x.had && !account.Static(x.Plan.Limit) {
		x.Account.Adapt(x.had, x.Plan, x.Now)
	}
}

// Unit returns the sub-units in one unit of the view. Under a limit that counts nothing, the view is still that of the
// plan before it.
func (x *Explanation) Unit() int64 {
	if account.Static(x.Plan.Limit) && x.Known {
		return x.had.Bucket.Unit
	}
	return x.Plan.Bucket.Unit
}

func (x *Explanation) time(ns int64) time.Time { return x.terms.Clock.Time(ns) }

// FloorDiv returns a/b, rounded down; 0 if b is 0.
func FloorDiv(a, b int64) int64 {
	if b == 0 {
		return 0
	}
	if q := a / b; q*b <= a {
		return q
	}
	return a/b - 1
}

func (x *Explanation) allow(source hybridlimit.Source, because string, args ...any) {
	x.Outcome, x.Source, x.because = Allow, source, fmt.Sprintf(because, args...)
}

func (x *Explanation) deny(source hybridlimit.Source, until int64, because string, args ...any) {
	x.Outcome, x.Source, x.Until, x.because = Deny, source, until, fmt.Sprintf(because, args...)
}

func (x *Explanation) ask(because string) {
	x.Outcome, x.Source, x.because = Ask, hybridlimit.SourceRedis, because
}

// explain decides a call for one unit and records the reason. If the decision does not depend on the account, explain
// makes it itself, as Limiter.slow does. Otherwise it makes the call on a copy of the account.
func (x *Explanation) explain() {
	c := &x.Conditions
	switch x.Switch {
	case control.SwitchAllowAll:
		x.allow(hybridlimit.SourceSwitch, "the switch of %s is allow_all: no limit counts", x.who())
		return
	case control.SwitchDenyAll:
		x.deny(hybridlimit.SourceSwitch, 0, "the switch of %s is deny_all", x.who())
		return
	}
	switch {
	case x.paused > 0:
		x.deny(hybridlimit.SourcePause, x.Now+x.paused, "the key is paused, by package spend or as a penalty")
	case x.Plan.Limit.Algorithm == hybridlimit.AlgUnlimited:
		x.allow(hybridlimit.SourceStatic, "the limit is unlimited")
	case x.Plan.Limit.Algorithm == hybridlimit.AlgBlocked:
		x.deny(hybridlimit.SourceStatic, 0, "the limit is blocked: it admits nobody")
	case x.control.Exactly(x.Plan):
		x.explainExact()
	case x.crowded && !c.Broken && c.MaxWait >= 0:
		x.ask("memory is full of keys that owe Redis, so that it decides each call for a key that is not there")
	case x.crowded && !c.Broken:
		x.explainCrowded("calls do not wait for Redis (MaxWait is negative)")
	case x.crowded:
		x.explainOverflow(x.whyAlone())
	default:
		trial := x.Account
		x.print(trial.Call(c, 1, x.Now))
	}
}

// print puts a verdict into words.
func (x *Explanation) print(v account.Verdict) {
	a, c, now := &x.Account, &x.Conditions, x.Now
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
func (x *Explanation) without(v account.Verdict) string {
	switch v.Without {
	case account.NeverWaits:
		return "calls do not wait for Redis (MaxWait is negative), and " + x.whyAsk(v.Asks)
	case account.WaitedLong:
		return fmt.Sprintf("Redis has kept calls for this key waiting for %s", long(x.Account.StuckFor(x.Now)))
	}
	return x.whyAlone()
}

// explainExact explains a decision under a limit for which Redis decides each call.
func (x *Explanation) explainExact() {
	r := x.Account.Refusal()
	switch {
	case !x.control.Exact() && r.Holds(1, x.Now):
		x.deny(hybridlimit.SourceDenyCache, min(r.Until, r.Relook), "Redis said that the log has no room for 1 unit")
	case x.Conditions.Broken && !x.control.Mute() && x.retryIn(x.tag) == 0:
		x.ask("the breaker lets this call see whether Redis answers again")
	case x.Conditions.Broken && x.crowded:
		x.explainOverflow(x.whyAlone())
	case x.Conditions.Broken:
		trial := x.Account
		x.print(trial.Call(&x.Conditions, 1, x.Now))
	case x.control.Exact():
		x.ask("in mode exact it decides each call")
	default:
		x.ask("under a sliding log it decides each call")
	}
}

// explainLease explains an admission from units in hand.
func (x *Explanation) explainLease(v account.Verdict) {
	a, although := &x.Account, ""
	if v.Without != account.None {
		although = ", although " + x.without(v)
	}
	if next, ok := a.Slots(); ok {
		x.allow(hybridlimit.SourceLease, "%s of the queue are leased to this process, the next of them served at %s%s", places(a.Held()), x.clock(max(x.Now, next)), although)
		return
	}
	x.allow(hybridlimit.SourceLease, "%s in hand, leased until %s%s", are(a.Held()), x.clock(a.LeaseEnds()), although)
}

// explainProof explains a denial that follows from the view.
func (x *Explanation) explainProof() {
	a, c := &x.Account, &x.Conditions
	proved := a.ProvedUntil(c, 1)
	because := x.said()
	if owed := a.OwedLately(); a.ViewLevel() >= x.Plan.Bucket.Unit && owed > 0 {
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
func (x *Explanation) explainCrowded(why string) {
	if x.Conditions.Mode == account.ModeStrict {
		x.deny(hybridlimit.SourceTimeout, 0, "%s, and mode strict admits nothing without its word", why)
		return
	}
	x.explainOverflow(why)
}

// explainFallback explains a decision of the fallback.
func (x *Explanation) explainFallback(v account.Verdict) {
	why, name, c := x.without(v), x.control.Fallback(), &x.Conditions
	left, most := x.Account.FallbackLeft(c, x.Now), c.Fallback.Burst
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
		x.deny(hybridlimit.SourceFallback, x.Now+v.Retry, "the fallback (%v) decides since %s: this process has %v of its %d units left", name, why, rounded(left), most)
	}
}
