package callfleet

import (
	"errors"
	"time"
)

// Kind is the limiter of the fleet.
type Kind string

// The kinds.
const (
	Engine    Kind = "engine"
	Limiter   Kind = "limiter"
	SortedSet Kind = "sorted-set"
	Central   Kind = "central"
)

// Scenario is one run.
type Scenario struct {
	Seed      uint64
	Kind      Kind
	Processes int
	Limit     int64         // calls of a key at once
	Keys      int           // equal in their load
	Lasts     time.Duration // of a call, on average; the times are exponential
	Load      float64       // calls that would run at once without a limit, as a part of the limits of all keys
	Wait      time.Duration // for which a call waits for a place at most
	Latency   time.Duration // a round trip to Redis: half in each direction
	Span      time.Duration // of the load
	Steady    time.Duration // the first part of the load, which the figures leave out
}

func (s Scenario) validate() error {
	if s.Processes < 1 || s.Limit < 1 || s.Keys < 1 || s.Lasts <= 0 || s.Load <= 0 || s.Latency < 0 || s.Wait < 0 || s.Steady < 0 || s.Span <= s.Steady {
		return errors.New("callfleet: a number of the scenario is out of range")
	}
	return nil
}

// rate returns the calls of the fleet in a second.
func (s Scenario) rate() float64 {
	return s.Load * float64(s.Limit) * float64(s.Keys) / s.Lasts.Seconds()
}

// Report is the result of a run. The calls are those that came in the steady part, and the messages those that were
// sent in it.
type Report struct {
	Calls    int64
	Admitted int64
	Waited   int64         // of Admitted: those that took any time
	Half     time.Duration // the median wait of Waited
	Slow     time.Duration // the 99th percentile of it
	Messages int64         // without heartbeats and Renewals
	Renewals int64         // messages of the sorted set for calls that run
	Ops      int64         // one key each; a message carries up to 64
	Most     int64         // calls at once at a key, in the whole run
	Open     int64         // calls of the whole run that were neither admitted nor denied; more than 0 is an error of the simulation
}
