package ratelease

import "time"

// Micro is the number of millionths in a unit.
const Micro = 1_000_000

// Life is the µs for which a rate is leased, and the length of a generation.
const Life = 4_000_000

// Largest is the largest rate, in units a second, and the largest burst, in units.
const Largest = 1_000_000_000

// Terms are a limit.
type Terms struct {
	Rate  int64 // millionths of a unit per second; 1 to Largest·Micro
	Burst int64 // millionths of a unit; Micro to Largest·Micro
}

// TermsOf converts a rate of so many units in a period, and a burst in units, for which Fits is true.
func TermsOf(units int64, period time.Duration, burst int64) Terms {
	return Terms{Rate: int64(perSecond(units, period) * Micro), Burst: burst * Micro}
}

// Range describes in words what Fits accepts.
const Range = "a burst and a rate of at most 10⁹ units and units a second, and at least one unit in eleven days"

// Said begins the text of a limit whose rate is leased, in a heartbeat.
const Said = "leased "

// Fits reports whether a rate and a burst can be leased: see Range.
func Fits(units int64, period time.Duration, burst int64) bool {
	rate := perSecond(units, period)
	return rate >= 1.0/Micro && rate <= Largest && burst >= 1 && burst <= Largest
}

func perSecond(units int64, period time.Duration) float64 { return float64(units) / period.Seconds() }

// Op is an exchange of the lease of one key.
type Op struct {
	Terms
	Number int64 // of the process's exchanges; each attempt has a larger one
	Procs  int64 // N
	Demand int64 // millionths of a unit per second that calls ask for
	Span   int64 // µs for which Demand counts; at most Life
	Have   int64 // millionths in hand, which stay there
	Back   int64 // millionths returned from the hand
	Spilt  int64 // millionths that had no room in the hand, or came for calls that were gone
	Want   int64 // millionths that waiting calls need beside Have
	Wish   int64 // millionths beside it, for calls that will come soon
	Most   int64 // units of the largest call; at least 1
	Owed   int64 // units admitted without a lease, since the process began with the key
	Acked  int64 // of Owed; Redis has debited them
	Reset  bool  // make the bucket full; leases stay
	View   View  // the sender's last; zero: none
}

// View is what the last answer said, so that a Redis that has lost its data knows of it.
type View struct {
	Born  int64 // µs; when the state began; 0: there was no answer
	At    int64 // µs of the answer
	Level int64 // millionths; it may be negative
	Out   int64 // the sum of all leased rates
	Rate  int64 // the sender's own
}

// Answer is the answer to an Op.
type Answer struct {
	Rate  int64 // leased
	Depth int64 // millionths up to which the process's bucket fills
	Units int64 // millionths beside it, at once
	Held  int64 // the most millionths that the process may have, after the calls that wait
	Next  int64 // µs; a call without tokens is no reason for an exchange before
	Born  int64 // as in View
	At    int64 // as in View
	Level int64 // as in View
	Out   int64 // as in View
}

// View returns what the next op tells.
func (a Answer) View() View { return View{a.Born, a.At, a.Level, a.Out, a.Rate} }
