package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// sentence joins the outcome, its reason, and notes on owed units and shadow.
func (x *Explanation) sentence() string {
	owed, floor := x.Account.Owed(), x.Plan.Floor
	var b strings.Builder
	switch x.Outcome {
	case Allow:
		b.WriteString("allowed")
		if x.Source == hybridlimit.SourceCredit {
			b.WriteString(" on credit")
		}
	case Deny:
		b.WriteString("denied")
		if x.Until > x.Now {
			b.WriteString(" until " + x.clock(x.Until))
		}
	default:
		fmt.Fprintf(&b, "the next call asks Redis, for %v at most,", x.terms.MaxWait)
	}
	b.WriteString(" because " + x.because)
	if owed > 0 && !x.owes {
		b.WriteString("; " + are(owed) + " owed by this process")
	}
	if floor > 0 {
		b.WriteString("; class " + x.control.Class.Name + " leaves " + units(floor) + " to others")
	}
	if p := x.Plan.Part; p.Of > 1 {
		fmt.Fprintf(&b, "; the key is split, and this process uses part %d of %d", p.Nth, p.Of)
	}
	if x.control.Shadow.Load() && x.Outcome != Allow && x.Source != hybridlimit.SourceSwitch {
		b.WriteString("; nobody is denied all the same, because the limit is in shadow")
	}
	return b.String()
}

// who returns the party that has set the switch.
func (x *Explanation) who() string {
	if x.SwitchOwn {
		return "this process"
	}
	return "the fleet"
}

// whyAlone returns the reason why decisions are made without Redis.
func (x *Explanation) whyAlone() string {
	if x.Switch == control.SwitchLocalOnly {
		return "the switch of " + x.who() + " is local_only"
	}
	if x.terms.Engine.Refusing(x.tag) {
		return "Redis refuses the syncs of the key's slot"
	}
	return "Redis does not answer"
}

// said returns a clause about the view.
func (x *Explanation) said() string {
	unit := x.Plan.Bucket.Unit
	if !x.Account.Viewed() {
		return "Redis has said nothing of the key yet"
	}
	noun, level := "bucket", x.Account.ViewLevel()
	switch {
	case x.Plan.Bucket.Queue:
		noun = "queue"
	case x.Conditions.Window.Period > 0:
		noun = "window"
	}
	var what string
	whole := level + x.Plan.Low()
	if x.Plan.Floor > 0 && whole < unit { // nothing is left for any class
		level = whole
	}
	switch {
	case x.Plan.Floor > 0 && level < unit && whole >= unit:
		what = "has " + units(whole/unit) + " left, all of them below the floor of the class"
	case level < 0 && noun == "bucket":
		what = "is " + units(-FloorDiv(level, unit)) + " in debt"
	case level < 0:
		what = "is " + units(-FloorDiv(level, unit)) + " beyond its limit"
	case level < unit && noun == "queue":
		what = "is full"
	case level < unit:
		what = "is empty"
		if noun == "window" {
			what = "is used up"
		}
	case noun == "queue":
		what = "has " + places(level/unit) + " left"
	default:
		what = "has " + units(level/unit) + " left"
	}
	return fmt.Sprintf("Redis said the %s %s %s ago", noun, what, long(x.Account.ViewAge(x.Now)))
}

// whyAsk returns the reason why neither units in hand nor credit decides.
func (x *Explanation) whyAsk(asks account.Reason) string {
	nothing := "nothing is leased"
	if !x.Known {
		nothing = "this process knows nothing of the key"
	}
	switch asks {
	case account.AnswerDue:
		return "its answer to an earlier question is on its way"
	case account.LocalUnsaid:
		return "what the fallback admitted is to be settled first"
	case account.NoCredit:
		return nothing + ", and " + x.whyNoCredit()
	case account.NoView:
		return nothing + ", and a key that it does not know may be empty"
	case account.ViewOver:
		return nothing + ", and what Redis said was of a window that is over"
	case account.CreditUsed:
		return fmt.Sprintf("%s, and the credit of %s is used up", nothing, units(x.Conditions.Credit))
	}
	return nothing + ", and " + x.said()
}

// whyNoCredit returns the reason why C is 0.
func (x *Explanation) whyNoCredit() string {
	switch t := x.terms; {
	case x.Conditions.Bucket.Queue:
		return "only Redis knows when the queue serves a call"
	case x.control.Mode() == account.ModeStrict:
		return "mode strict gives no credit"
	case !t.GivesCredit():
		return "Overshoot gives no credit"
	case !t.Fleet.Known(x.Now):
		return "there is no credit while the fleet's size is not known"
	}
	return NoCredit(x.terms, x.Plan, x.terms.Fleet.Accounts())
}

// NoCredit returns the reason why credit is 0 units in a fleet of n, and the setting that would give 1.
func NoCredit(t *keys.Terms, p *account.Plan, n int64) string {
	burst, others := p.Undivided().Limit.BurstSize(), max(n-1, 1) // C is a part of the whole burst
	switch {
	case t.Control.Mode() != account.ModeAuto:
		return fmt.Sprintf("credit is 0 units: burst %d / %d is below one, and a burst of %d gives 1", burst, others, others)
	case others > burst:
		return fmt.Sprintf("credit is 0 units: Overshoot %g × burst %d / %d is below one, and no Overshoot gives 1 with a burst below %d", t.Overshoot, burst, others, others)
	}
	enough := float64((1000*others+burst-1)/burst) / 1000
	return fmt.Sprintf("credit is 0 units: Overshoot %g × burst %d / %d is below one, and an Overshoot of %g gives 1", t.Overshoot, burst, others, enough)
}

// clock returns the time of day, with the date if it is 12 h or more ahead.
func (x *Explanation) clock(ns int64) string {
	at := x.time(ns).UTC()
	if at.Sub(x.time(x.Now)) >= 12*time.Hour {
		return at.Format("2006-01-02 15:04:05 UTC")
	}
	return at.Format("15:04:05.000 UTC")
}

// long returns an elapsed time, rounded for people.
func long(ns int64) string {
	switch d := time.Duration(max(0, ns)); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	default:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
}

// rounded returns units of a share for a sentence: to a thousandth, and without an exponent.
func rounded(units float64) string {
	return strconv.FormatFloat(math.Round(units*1000)/1000, 'f', -1, 64)
}

func units(n int64) string {
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}

func places(n int64) string {
	if n == 1 {
		return "1 place"
	}
	return fmt.Sprintf("%d places", n)
}

func are(n int64) string {
	if n == 1 {
		return "1 unit is"
	}
	return fmt.Sprintf("%d units are", n)
}

// explainOverflow explains a decision without Redis for a key for which memory has no room: see
// keys.Terms.WithoutMemory.
func (x *Explanation) explainOverflow(why string) {
	const full = "the fallback (%v) decides since %s, and memory is full of keys that owe: there is none to count this one in"
	kind, t := x.control.Fallback(), x.Conditions.Fallback
	if !t.Counts() {
		if kind == fallback.KindAllowAll {
			x.allow(hybridlimit.SourceFallback, full, kind, why)
		} else {
			x.deny(hybridlimit.SourceFallback, x.Now+int64(x.terms.SyncInterval), full, kind, why)
		}
		return
	}
	left := t.Share.Left(t.Size, x.Now)
	const some = full + ", and of its share of %d units %v are left"
	if left >= float64(1+t.Floor)-fallback.Slack {
		x.allow(hybridlimit.SourceFallback, some, kind, why, t.Burst, rounded(left))
		return
	}
	x.deny(hybridlimit.SourceFallback, x.Now+t.Share.Wait(t.Size, 1, x.Now), some, kind, why, t.Burst, rounded(left))
}
