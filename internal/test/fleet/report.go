package fleet

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Report is the result of a run. Figures are for all keys together unless stated otherwise. The steady figures leave
// out Scenario.Steady at the start.
type Report struct {
	Calls    int64 // decisions, in the steady part
	Admitted int64 // admitted ones of Calls
	Units    int64 // admitted units, in the steady part
	Central  int64 // units that one central limiter per key admits of the same calls, in the steady part

	// CriticalCalls is the part of Calls that is critical, and CriticalAdmitted the admitted ones of them.
	CriticalCalls, CriticalAdmitted int64
	// SpikeCalls and SpikeAdmitted are those of the spikes.
	SpikeCalls, SpikeAdmitted int64

	// Utilisation is Units/Central.
	Utilisation float64
	// Exceedance is the largest excess of any key over the promise of its algorithm, in units, over the whole run:
	//
	//	algorithm       excess over
	//	bucket          Burst + rate·t, in any interval
	//	fixed window    Rate·m, in any m windows in a row
	//	sliding window  Rate, for the estimate
	//	sliding log     Rate, for the units in the log
	//	queue           Burst as units enter, and the rate as they leave
	//
	// Windows and logs are on Redis's clock.
	//
	// The figure is at spending time: a call that waited for Redis counts when Redis granted it, which is half of
	// Scenario.Latency before its end. If replies are late, lost or held, the grant may be up to 20 ms earlier.
	// Exceedance is then too large by the refill of that time, or by Vague. It is never negative.
	Exceedance float64
	// Vague is the number of units whose time is uncertain. For windows these are the units that Redis or a process may
	// have granted in the window before the one in which they count. For a log these are all units whose answers took
	// longer than a round trip.
	Vague int64
	// Debited is the units that Redis had debited on all keys when all was quiet. Accounts is the sum that it must
	// equal: admitted + expired + held + lost units, minus the owed, dropped and forgiven ones, each as in Stats.
	// Accounts may only be smaller, and only if a fault makes Redis debit units while no process hears of them: a
	// crash, a killed Redis, or lost replies to exact calls or before a wipe. It may be larger by lost units that Redis
	// took back while no process heard of it: a crash, or a wipe.
	Debited, Accounts int64
	// Reborn is the number of states that a merge created anew after Redis lost writes. Each may have had debits that
	// Debited does not include.
	Reborn int

	// Dropped is the owed units that Redis never hears of, of all processes. A crash causes them. The bound of the
	// theorem grows by them.
	Dropped int64

	Ops        int64 // sent to Redis for decisions, in the steady part
	Messages   int64 // messages that carried the ops
	Heartbeats int64

	Waited  int64         // decisions that took virtual time, in the steady part
	Slowest time.Duration // of all decisions

	// FalseDenials is the number of denials in the steady part that a central bucket of the key would have admitted.
	// The bucket is fed with all admissions. It is also fed with these false denials, so that a missing unit counts
	// once and not for each later call.
	FalseDenials int64

	// Jain is (Σx)²/(n·Σx²) over the admitted units of the processes. Acceptance is the admitted part of the calls, by
	// process.
	Jain       float64
	Acceptance []float64

	BySource map[hybridlimit.Source]int64 // decisions, of the whole run
	Timeline []Sample
	Violated []string // invariants that did not hold: accounts, goroutines, TTLs, errors
}

// SampleEvery is the length of a [Sample].
const SampleEvery = 100 * time.Millisecond

// Sample is the activity in one SampleEvery of the run.
type Sample struct {
	At       time.Duration // since the start of the load
	Offered  int64         // units asked for
	Admitted int64         // units
	Messages int64
}
