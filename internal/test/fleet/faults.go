package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// conduct plays the faults, the changes of the limit and the readings during the run. A fault starts up to a tenth of a
// ms late, so that it does not coincide with another event.
func (w *world) conduct() {
	w.Await = inBubble(w.start)
	rng := w.rng(forFaults, 0, 0)
	w.At(int64(w.s.Steady), func() { w.countOps(-1) })
	w.At(int64(w.s.Span), func() { w.countOps(1) })
	end := w.s.Span
	for _, f := range w.s.Faults {
		f.At += time.Duration(rng.Int64N(int64(100 * time.Microsecond)))
		which := rng.IntN(len(w.keys))
		if f.At >= w.s.Span {
			continue
		}
		begin, over := w.faultOf(f, which)
		if begin == nil {
			w.violate("there is no fault %q", f.Kind)
			continue
		}
		w.At(int64(f.At), begin)
		if over != nil && (f.For >= 0 || f.Kind != Crash) {
			ends := f.At + max(f.For, 0)
			w.At(int64(ends), over)
			end = max(end, ends)
		}
	}
	for _, c := range w.s.Changes {
		w.At(int64(c.At), func() { w.change(c.Limit) })
	}
	for at := harvestEvery; at < end; at += harvestEvery {
		w.At(int64(at), w.ledger.harvest)
	}
	w.Run(int64(end))
}

// countOps adds up the ops sent so far. It is called at both ends of the steady part.
func (w *world) countOps(sign int64) {
	for _, p := range w.procs {
		w.ops += sign * p.ops()
	}
}

// faultOf returns the functions that begin and end a fault. over is nil for a fault without an end.
func (w *world) faultOf(f Fault, key int) (begin, over func()) {
	var hit []*process
	each := func(do func(*process)) func() {
		return func() {
			for _, p := range slices.Clone(w.procs) {
				if f.hits(p.number) && !p.ended.Load() {
					do(p)
				}
			}
		}
	}
	switch f.Kind {
	case LoseRequests, LoseReplies, Duplicate, LateReplies, Slow:
		return func() { next := append(slices.Clone(*w.active.Load()), f); w.active.Store(&next) }, func() {
			next := slices.Clone(*w.active.Load())
			i := slices.Index(next, f)
			next = slices.Delete(next, i, i+1)
			w.active.Store(&next)
		}
	case PauseProcess:
		// Calls that already wait time out. Those of a process that is suspended from outside would time out when it
		// resumes.
		return each(func(p *process) {
				if !p.paused.Swap(true) {
					p.hold(1)
					hit = append(hit, p)
				}
			}), func() {
				for _, p := range hit {
					p.paused.Store(false)
					p.hold(-1)
				}
			}
	case Crash:
		return each(func(p *process) {
				hit = append(hit, p)
				p.ended.Store(true)
				w.leaving.Go(p.crash)
			}), func() {
				for _, p := range hit {
					w.launch(p.number)
				}
			}
	case Leave:
		return each(func(p *process) {
			p.ended.Store(true)
			w.leaving.Go(func() { _ = p.leave() }) // Report.Dropped counts the units that it could not pay
		}), nil
	case Join:
		return func() { w.launch(w.newest); w.newest++ }, nil
	case ClockStep:
		return func() {
			w.ledger.harvest()
			w.step.Add(int64(f.Size))
			w.steps = append(w.steps, step{w.since(), int64(f.Size)})
			w.stepped.Store(true)
			w.setClock()
		}, nil
	case Wipe:
		return func() { w.ledger.harvest(); w.wipe() }, nil
	case EvictKey:
		return func() {
			w.ledger.harvest()
			w.bubble.Mini.Del(w.ledger.names[key])
			w.ledger.gone(w.ledger.names[key])
			w.pushed.change(func() { delete(w.pushed.levels, w.keys[key]) })
		}, nil
	case Mistype:
		return func() { w.ledger.harvest(); w.mistype(f.P) }, nil
	case ScriptFlush:
		return func() {
			if w.down > 0 {
				return
			}
			if err := w.bubble.Client(nil).ScriptFlush(context.Background()).Err(); err != nil {
				w.violate("SCRIPT FLUSH: %v", err)
			}
		}, nil
	case KillRedis:
		return w.kill, w.restart
	case HangRedis:
		hang := func(by int) func() {
			return func() {
				w.hung += by
				for _, p := range w.procs {
					p.hold(by)
				}
			}
		}
		return hang(1), hang(-1)
	}
	return nil, nil
}

// change sets the limit of the fleet, through one of its processes.
func (w *world) change(l hybridlimit.Limit) {
	if w.s.Kind == CentralExact {
		w.shared.change(l)
		return
	}
	for _, p := range w.procs {
		if p.limiter != nil && !p.ended.Load() {
			w.leaving.Go(func() {
				if err := p.limiter.SetFleetLimit(context.Background(), hybrid.FleetLimit{Limit: l}); err != nil {
					w.violate("SetFleetLimit: %v", err)
				}
			})
			return
		}
	}
	w.violate("no process can set the limit %v", l)
}

func (w *world) wipe() {
	w.bubble.Mini.FlushAll()
	w.ledger.gone(w.ledger.names...)
	w.pushed.change(func() { clear(w.pushed.levels) })
}

func (w *world) mistype(p float64) {
	rng := w.rng(forFaults, 1, 0)
	for _, key := range w.bubble.Mini.Keys() { // in their order
		if p > 0 && rng.Float64() >= p {
			continue
		}
		was := w.bubble.Mini.Type(key)
		w.bubble.Mini.Del(key)
		var err error
		if was == "string" {
			_, err = w.bubble.Mini.Lpush(key, "of another program")
		} else {
			err = w.bubble.Mini.Set(key, "of another program")
		}
		if err != nil {
			w.violate("mistype: %v", err)
		}
		w.bubble.Mini.SetTTL(key, time.Hour)
		w.ledger.gone(key)
	}
}

func (w *world) kill() {
	if w.down++; w.down > 1 {
		return
	}
	w.ledger.harvest()
	w.bubble.Kill()
	w.pushed.change(func() { w.pushed.down = true })
}

func (w *world) restart() {
	if w.down--; w.down > 0 {
		return
	}
	w.bubble.Restart()
	w.wipe()
	w.pushed.change(func() { w.pushed.down = false })
}
