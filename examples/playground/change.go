package main

import (
	"fmt"
	"time"
)

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
