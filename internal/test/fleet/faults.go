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
	if w.ledger != nil {
		for at := harvestEvery; at < end; at += harvestEvery {
			w.At(int64(at), w.ledger.harvest)
		}
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
		return func() { w.activate(f) }, func() { w.deactivate(f) }
	case PauseProcess:
		return w.pause(f)
	case Crash:
		return w.crash(f)
	case Leave:
		return each(func(p *process) {
			p.ended.Store(true)
			w.leaving.Go(func() { _ = p.leave() }) // Report.Dropped counts the units that it could not pay
		}), nil
	case Join:
		return func() { w.launch(w.newest); w.newest++ }, nil
	case ClockStep:
		return func() {
			w.harvest()
			w.step.Add(int64(f.Size))
			w.steps = append(w.steps, step{w.since(), int64(f.Size)})
			w.stepped.Store(true)
			w.setClock()
		}, nil
	case Wipe:
		return func() { w.harvest(); w.wipe() }, nil
	case EvictKey:
		return func() { w.harvest(); w.evict(key) }, nil
	case Mistype:
		return func() { w.harvest(); w.mistype(f.P) }, nil
	case ScriptFlush:
		return w.flushScripts, nil
	case KillRedis:
		return w.kill, w.restart
	case HangRedis:
		return func() { w.hang(true) }, func() { w.hang(false) }
	}
	return nil, nil
}

// change sets the limit of the fleet, through one of its processes.
func (w *world) change(l hybridlimit.Limit) {
	if w.shared != nil {
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

func (w *world) activate(f Fault) {
	next := append(slices.Clone(*w.active.Load()), f)
	w.active.Store(&next)
}

func (w *world) deactivate(f Fault) {
	next := slices.Clone(*w.active.Load())
	if i := slices.Index(next, f); i >= 0 {
		next = slices.Delete(next, i, i+1)
	}
	w.active.Store(&next)
}

// pause suspends processes from outside: they get no calls, and no message reaches or leaves them. Their timers
// continue, so calls that already wait time out. The calls of a suspended process would time out when it resumes.
func (w *world) pause(f Fault) (begin, over func()) {
	var stopped []*process
	begin = func() {
		for _, p := range w.procs {
			if f.hits(p.number) && !p.ended.Load() && !p.paused.Load() {
				p.paused.Store(true)
				p.hold(1)
				stopped = append(stopped, p)
			}
		}
	}
	return begin, func() {
		for _, p := range stopped {
			p.paused.Store(false)
			p.hold(-1)
		}
	}
}

func (w *world) crash(f Fault) (begin, over func()) {
	var dead []int
	begin = func() {
		for _, p := range w.procs {
			if f.hits(p.number) && !p.ended.Load() {
				dead = append(dead, p.number)
				p.ended.Store(true)
				w.leaving.Go(p.crash)
			}
		}
	}
	return begin, func() {
		for _, number := range dead {
			w.launch(number)
		}
	}
}

func (w *world) harvest() {
	if w.ledger != nil {
		w.ledger.harvest()
	}
}

func (w *world) wipe() {
	if w.bubble != nil {
		w.bubble.Mini.FlushAll()
		w.ledger.gone(w.ledger.names...)
	}
	if w.pushed != nil {
		w.pushed.wipe()
	}
}

func (w *world) evict(key int) {
	if w.ledger != nil {
		w.bubble.Mini.Del(w.ledger.names[key])
		w.ledger.gone(w.ledger.names[key])
	}
	if w.pushed != nil {
		w.pushed.mu.Lock()
		defer w.pushed.mu.Unlock()
		delete(w.pushed.levels, w.keys[key])
	}
}

func (w *world) mistype(p float64) {
	if w.bubble == nil {
		return
	}
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

func (w *world) flushScripts() {
	if w.bubble != nil && w.down == 0 {
		if err := w.bubble.Client(nil).ScriptFlush(context.Background()).Err(); err != nil {
			w.violate("SCRIPT FLUSH: %v", err)
		}
	}
}

func (w *world) kill() {
	if w.down++; w.down > 1 {
		return
	}
	w.harvest()
	if w.bubble != nil {
		w.bubble.Kill()
	}
	w.setDown(true)
}

func (w *world) restart() {
	if w.down--; w.down > 0 {
		return
	}
	if w.bubble != nil {
		w.bubble.Restart()
	}
	w.wipe()
	w.setDown(false)
}

// setDown serves the server of CountAndPush, which has no Redis.
func (w *world) setDown(down bool) {
	if w.pushed != nil {
		w.pushed.mu.Lock()
		defer w.pushed.mu.Unlock()
		w.pushed.down = down
	}
}

func (w *world) hang(yes bool) {
	by := -1
	if yes {
		by = 1
	}
	w.hung += by
	for _, p := range w.procs {
		p.hold(by)
	}
}
