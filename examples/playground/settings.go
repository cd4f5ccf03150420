package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// settings are the settings of the fleet, as the page sends and receives them.
type settings struct {
	Processes int     `json:"processes"`
	Rate      int64   `json:"rate"`      // units a second
	Burst     int64   `json:"burst"`     // units
	Load      float64 `json:"load"`      // calls, as a multiple of the rate
	K         int64   `json:"k"`         // hybrid.Config.SyncEvery; 0: adaptive
	TMs       int64   `json:"t_ms"`      // hybrid.Config.SyncInterval
	Overshoot float64 `json:"overshoot"` // of the burst; ModeAuto only
	Mode      string  `json:"mode"`
	Naive     bool    `json:"naive"` // run count-and-push for comparison
	Running   bool    `json:"running"`
	Permits   int64   `json:"permits"`   // limit of calls in flight
	CallMs    int64   `json:"call_ms"`   // time that a call in flight takes
	CallLoad  float64 `json:"call_load"` // calls in flight that the load would run, as a multiple of Permits
}

var initial = settings{
	Processes: 4, Rate: 500, Burst: 500, Load: 3, TMs: 50, Overshoot: 0.05, Mode: hybrid.ModeAuto.String(), Naive: true, Running: true,
	Permits: 12, CallMs: 3000, CallLoad: 0.5,
}

const (
	maxProcesses = 12
	maxRate      = 2000
	maxBurst     = 5000
	maxLoad      = 20
	maxK         = 10_000
	maxT         = 2000 // ms
	maxPermits   = 100
	maxCallMs    = 60_000
	maxCallLoad  = 5
)

func (s settings) violations() adapter.Violations {
	var bad adapter.Violations
	bad.AddIf(s.Processes < 1 || s.Processes > maxProcesses, "processes", s.Processes, "must be 1 to 12")
	bad.AddIf(s.Rate < 1 || s.Rate > maxRate, "rate", s.Rate, "must be 1 to 2000 units a second")
	bad.AddIf(s.Burst < 1 || s.Burst > maxBurst, "burst", s.Burst, "must be 1 to 5000 units")
	bad.AddIf(!(s.Load >= 0 && s.Load <= maxLoad), "load", s.Load, "must be 0 to 20 times the limit")
	bad.AddIf(s.K < 0 || s.K > maxK, "k", s.K, "must be 0 (adaptive) to 10000 units")
	bad.AddIf(s.TMs < 5 || s.TMs > maxT, "t_ms", s.TMs, "must be 5 to 2000 ms")
	bad.AddIf(!(s.Overshoot >= 0 && s.Overshoot <= 1), "overshoot", s.Overshoot, "must be 0 to 1, a fraction of the burst")
	bad.AddIf(s.Permits < 1 || s.Permits > maxPermits, "permits", s.Permits, "must be 1 to 100 calls in flight")
	bad.AddIf(s.CallMs < 100 || s.CallMs > maxCallMs, "call_ms", s.CallMs, "must be 100 ms to a minute")
	bad.AddIf(!(s.CallLoad >= 0 && s.CallLoad <= maxCallLoad), "call_load", s.CallLoad, "must be 0 to 5 times the limit of calls in flight")
	_, known := parseMode(s.Mode)
	bad.AddIf(!known, "mode", s.Mode, "must be auto, strict, deferred or exact")
	return bad
}

func parseMode(name string) (hybrid.Mode, bool) {
	modes := []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact}
	i := slices.IndexFunc(modes, func(m hybrid.Mode) bool { return m.String() == name })
	if i < 0 {
		return 0, false
	}
	return modes[i], true
}

func (s settings) limit() hybridlimit.Limit {
	return hybridlimit.TokenBucket(s.Rate, time.Second, s.Burst)
}

// permits returns the limit of calls in flight.
func (s settings) permits() hybridlimit.Limit { return hybridlimit.Concurrent(s.Permits) }

func (s settings) callTime() time.Duration { return time.Duration(s.CallMs) * time.Millisecond }

// limiter returns the configuration of each process's limiter. A limiter keeps it, so other values of these fields
// require new limiters.
func (s settings) limiter() hybrid.Config {
	mode, _ := parseMode(s.Mode) // violations has checked it
	c := hybrid.Config{Name: "requests", Mode: mode, SyncEvery: s.K, SyncInterval: time.Duration(s.TMs) * time.Millisecond}
	if mode == hybrid.ModeAuto {
		c.Overshoot = s.Overshoot
		if c.Overshoot == 0 {
			c.Overshoot = -1 // none; 0 would be the default
		}
	}
	return c
}

// rebuilds reports whether the change from s to t requires new limiters.
func (s settings) rebuilds(t settings) bool {
	return s.Mode != t.Mode || s.K != t.K || s.TMs != t.TMs || s.Overshoot != t.Overshoot
}

// credit returns C, as defined by package hybrid, for a fleet of n.
func (s settings) credit(n int64) int64 {
	others := max(n-1, 1)
	switch mode, _ := parseMode(s.Mode); mode {
	case hybrid.ModeAuto:
		return int64(math.Floor(s.Overshoot*float64(s.Burst))) / others
	case hybrid.ModeDeferred:
		k := s.K
		if k == 0 {
			k = 1000 // the value that the bound of hybrid.Config.SyncEvery uses then
		}
		return min(k, s.Burst/others)
	}
	return 0
}

// set changes the settings. Invalid settings change nothing. If a process cannot be made from valid settings, they stay
// changed and the error names the process.
func (f *fleet) set(to settings) error {
	if err := to.violations().Err("playground"); err != nil {
		return err
	}
	from := f.settings
	if from == to {
		return nil
	}
	f.settings = to
	switch {
	case from.rebuilds(to):
		if err := f.rebuild(); err != nil {
			return err
		}
		f.note(kindYou, "Settings: mode %s, K %s, T %d ms, overshoot %g %%; every process that has not crashed has a new limiter.",
			to.Mode, adaptive(to.K), to.TMs, 100*to.Overshoot)
	case from.limit() != to.limit():
		for p := range f.alive {
			if err := p.limiter.SetLimit(to.limit()); err != nil {
				return fmt.Errorf("process %d: %w", p.number, err)
			}
			p.naive.setLimit(to.limit())
		}
		f.note(kindYou, "The limit is %v. Used units stay used.", to.limit())
	}
	if from.Permits != to.Permits {
		for p := range f.alive {
			if err := p.flight.limiter.SetLimit(to.permits()); err != nil {
				return fmt.Errorf("process %d: %w", p.number, err)
			}
		}
		f.inFlight.change(to.Permits, time.Now())
		f.note(kindYou, "The limit of calls in flight is %v. Running calls go on.", to.permits())
	}
	if from.Processes != to.Processes {
		f.note(kindYou, "%d processes instead of %d.", to.Processes, from.Processes)
	}
	if err := f.resize(to.Processes); err != nil {
		return err
	}
	if from.Running != to.Running {
		f.note(kindYou, "%s", map[bool]string{true: "The load continues.", false: "The load is stopped."}[to.Running])
	}
	switch {
	case from.limit() != to.limit():
		f.countAnew(time.Now().Add(oldLeases))
	case from.rebuilds(to):
		f.countAnew(time.Now())
	}
	f.watch.settings = to
	f.watch.fleet(to.Processes, to.credit(int64(to.Processes)))
	return nil
}

func adaptive(k int64) string {
	if k == 0 {
		return "adaptive"
	}
	return fmt.Sprint(k)
}

// rebuild gives every process a new limiter with the current settings. Paused processes stay paused, and crashed ones
// stay crashed.
func (f *fleet) rebuild() error {
	paused := map[*process]bool{} // end freezes all of them
	for p := range f.alive {
		paused[p] = p.frozen.Load()
	}
	f.retire(f.slots, f.grace())
	for i, s := range f.slots {
		if s.crashed {
			continue
		}
		p, err := f.newProcess(s.number)
		if err != nil {
			for _, bad := range f.slots[i:] {
				bad.crashed = true
			}
			return err
		}
		if paused[s] {
			p.pause()
		}
		f.slots[i] = p
	}
	return nil
}
