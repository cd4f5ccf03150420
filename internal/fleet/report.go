package fleet

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Report is what a run came to. Figures are of all keys together unless they
// say otherwise; the steady ones leave out Scenario.Steady at the start.
type Report struct {
	Calls    int64 // decisions asked for, in the steady part
	Admitted int64 // of them
	Units    int64 // admitted units, in the steady part
	Central  int64 // units that one central limiter per key admits of the same calls, in the steady part

	// Utilisation is Units/Central.
	Utilisation float64
	// Exceedance is the largest excess of any key over what its algorithm
	// promises, in units, over the whole run: of a bucket over Burst + rate·t
	// in any interval; of fixed windows over Rate·m in any m in a row; of a
	// sliding window's estimate, and of the units in a log, over Rate; of a
	// queue over Burst as it enters, and over the rate as it leaves. Windows
	// and logs are on Redis's clock.
	//
	// All of it at spending time: a call that waited for Redis counts when
	// Redis granted it, which is half of Scenario.Latency before its end; where
	// replies are late, lost or held, it may be up to 20 ms earlier, and this
	// too large by that much refill, or by Vague. Negative never.
	Exceedance float64
	// Vague is the units of windows that Redis may have granted in the window
	// before that in which they are counted, and all of a log whose answers
	// took longer than a round trip.
	Vague int64
	// Debited is what Redis had debited when all was quiet, on all keys;
	// Accounts is the line that it must equal: admitted + expired + held +
	// lost units, less what was dropped or forgiven, each as Stats says. It may
	// only be less where faults let Redis debit what nobody hears of: a crash,
	// a killed Redis, lost replies to exact calls or before a wipe.
	Debited, Accounts int64

	// Dropped is owed units that Redis never hears of, of all processes: what a
	// crash leaves. They may exceed the bound of the theorem by so many.
	Dropped int64

	Ops        int64 // sent to Redis for decisions, in the steady part
	Messages   int64 // that carried them
	Heartbeats int64

	Waited  int64         // decisions that took any virtual time, in the steady part
	Slowest time.Duration // of all decisions

	// FalseDenials is how many denials of the steady part the central bucket
	// of that key, fed with what was admitted, would have admitted. It is fed
	// with them too: what is missing is missed once, not by every later call.
	FalseDenials int64

	// Jain is (Σx)²/(n·Σx²) over the processes' admitted units. Acceptance is
	// each process's admitted part of its calls.
	Jain       float64
	Acceptance []float64

	BySource map[hybridlimit.Source]int64 // decisions, of the whole run
	Timeline []Sample
	Violated []string // invariants that did not hold: accounts, goroutines, TTLs, errors
}

// SampleEvery is how long a [Sample] is.
const SampleEvery = 100 * time.Millisecond

// Sample is what happened in SampleEvery of the run.
type Sample struct {
	At       time.Duration // since the load started
	Offered  int64         // units asked for
	Admitted int64         // units
	Messages int64
}
