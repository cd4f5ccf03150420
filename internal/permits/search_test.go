package permits_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// fault is something that happens in a schedule, beside crashes, pauses, and lost, doubled and late messages.
type fault string

const (
	noFault    fault = "none"
	wiped      fault = "wipe"
	evicted    fault = "eviction of one key"
	failedOver fault = "failover to a replica that is behind"
	outage     fault = "failover to a replica that is behind, 10 to 13 s after the end of the master"
	longOutage fault = "failover to a replica that is behind, 14 to 17 s after the end of the master" // only of mutants
	stepped    fault = "Redis's clock steps by 5 s"
	leaped     fault = "Redis's clock steps by an hour"
	changed    fault = "another limit"
	reset      fault = "Reset"
	renamed    fault = "a process takes another identity"
)

var faults = []fault{noFault, wiped, evicted, failedOver, outage, stepped, leaped, changed, reset, renamed}

// span is the time of the calls in a schedule, and calm the time until all of them have ended and each process runs.
const (
	span = 25 * second
	calm = 15 * second
	rest = 20 * second
)

// outcome is the result of one schedule.
type outcome struct {
	excess                           int64    // most calls in flight above the permits: see world.starts
	admitted, arrived, asked, losses int64    // see world
	bad                              []string // broken rules besides
	kept                             []string // see world
}

// draw is a random setting.
func draw(rnd *rand.Rand, f fault, mutant string) setting {
	return setting{
		procs: 2 + rnd.IntN(4), keysCount: 2, limit: 2 + rnd.Int64N(11), most: []int64{1, 1, 3}[rnd.IntN(3)], share: rnd.IntN(2) == 0,
		patience: []int64{second * 3 / 10, second * 3 / 10, 12 * second}[rnd.IntN(3)], loss: 0.1, double: 0.1, timeout: second / 4,
		mutant: mutant, faulty: f != noFault && f != changed && f != renamed,
		delay: func(w *world) int64 {
			switch x := w.rnd.Float64(); {
			case x < 0.7:
				return int64(0.02 * w.rnd.Float64() * float64(second))
			case x < 0.97:
				return int64(0.4 * w.rnd.Float64() * float64(second))
			default:
				return int64(3 * w.rnd.Float64() * float64(second))
			}
		},
	}
}

// schedule runs one random fleet with one kind of fault.
func schedule(f fault, mutant string, seed uint64, adjust ...func(*setting)) outcome {
	rnd := rand.New(rand.NewPCG(seed, 19))
	s := draw(rnd, f, mutant)
	for _, change := range adjust {
		change(&s)
	}
	w := newWorld(s, rnd)
	w.load()
	w.strike(f)
	for t := second; t < span+calm; t += second / 4 {
		w.At(t, w.watch)
	}
	w.Run(span + calm)
	w.collect()
	o := outcome{admitted: w.admitted, arrived: w.arrived, asked: w.asked, losses: w.losses, bad: w.bad, kept: w.kept}
	for _, k := range w.keys {
		o.excess = max(o.excess, k.excess)
	}
	if w.losses > 0 && !w.faulty {
		o.bad = append(o.bad, fmt.Sprintf("Redis reported %d losses without one", w.losses))
	}
	return o
}

// load lets calls come at each process until the span ends, and crashes and pauses processes.
func (w *world) load() {
	rnd := w.rnd
	lasts := []int64{second / 10, second * 6 / 10, second * 6 / 10, 8 * second}[rnd.IntN(4)]
	rate := (0.5 + 1.5*rnd.Float64()) * float64(w.limit) / float64(lasts) / (float64(1+w.most) / 2)
	for i, p := range w.procs {
		var arrive func()
		arrive = func() {
			if p.gone || w.Now > span {
				return
			}
			w.After(w.exp(int64(float64(w.setting.procs*w.keysCount)/rate/2)), arrive)
			p.later(func() {
				if w.Now > span {
					return
				}
				c := &call{key: rnd.IntN(w.keysCount), lasts: w.exp(lasts)}
				c.waiter.N, c.waiter.Once = 1+rnd.Int64N(min(w.most, w.limit)), rnd.IntN(4) == 0
				p.call(c)
			})
		}
		w.After(int64(rnd.Float64()*0.3*float64(second)), arrive)
		if i > 0 && rnd.Float64() < 0.3 {
			w.At(w.moment(15), p.kill)
		}
		if rnd.Float64() < 0.3 {
			pause := []int64{second / 2, 5 * second / 2, 5 * second, 12 * second}[rnd.IntN(4)]
			w.At(w.moment(15), func() { p.frozen = w.Now + pause })
		}
	}
}

// moment is a random time at which a fleet has begun.
func (w *world) moment(s int64) int64 { return 3*second + w.rnd.Int64N(s*second) }

// kill ends a process and its calls.
func (p *process) kill() {
	p.gone = true
	for _, h := range p.keys {
		for c := range h.calls {
			p.w.drop(c)
		}
		for _, c := range h.queued {
			delete(p.w.keys[h.key].stuck, c)
		}
		h.queued = nil
	}
}

// strike plans the fault.
func (w *world) strike(f fault) {
	when := w.moment(12)
	switch f {
	case noFault:
	case wiped:
		w.At(when, w.wipe)
	case evicted:
		w.At(when, func() { delete(w.redis.memory.Keys, w.keys[0].name) })
	case failedOver:
		w.At(when-int64(0.3*w.rnd.Float64()*float64(second)), w.replicate)
		w.At(when, w.failOver)
	case outage:
		w.At(when-int64(0.3*w.rnd.Float64()*float64(second)), w.replicate)
		w.cutOff(when, when+10*second+w.rnd.Int64N(3*second))
	case longOutage: // longer than a process tells a give-back again
		w.At(when-int64(0.3*w.rnd.Float64()*float64(second)), w.replicate)
		w.cutOff(when, when+14*second+w.rnd.Int64N(3*second))
	case stepped:
		w.At(when, func() { w.redis.step = 5_000_000 })
	case leaped:
		hour := []int64{-1, 1}[w.rnd.IntN(2)] * permits.Hour
		w.At(when, func() {
			w.redis.step, w.redis.beats = hour, map[string]int64{}
			if hour > 0 { // the set of the members expires
				w.redis.losses = 0
			}
		})
	case changed:
		w.change(when)
	case reset:
		p := w.procs[0]
		w.At(when, func() {
			p.later(func() {
				p.keys[0].Reset()
				p.settle(p.keys[0])
			})
		})
	case renamed:
		p := w.procs[0]
		w.At(when, func() { p.later(p.rename) })
	}
}

// TestGiveBackBeforeAFailover loses the last give-back of a process that sends nothing afterwards. The master has ended, and the replica
// begins a minute later. Regression: the permit stayed booked until the process asked for the key again.
func TestGiveBackBeforeAFailover(t *testing.T) {
	w := newWorld(quiet(2, 1), rand.New(rand.NewPCG(1, 1)))
	learns, first, next := &call{}, &call{lasts: second / 10}, &call{lasts: second}
	learns.waiter.N, first.waiter.N, next.waiter.N = 1, 1, 1
	w.At(3*second, func() { w.procs[0].call(learns) }) // the tag is new: Redis learns until 6 s
	w.At(8*second, func() { w.procs[0].call(first) })
	w.At(8*second+second/20, w.replicate)
	w.cutOff(9*second, 69*second)
	w.At(75*second, func() {
		w.patience = 2 * second
		w.procs[1].call(next)
	})
	w.Run(78 * second)
	if !first.runs || !next.runs {
		t.Errorf("the first call was admitted: %v; one of the other process after the failover: %v", first.runs, next.runs)
	}
}

// cutOff ends the master at a time, and begins with the replica at another one.
func (w *world) cutOff(from, to int64) {
	loss := w.loss
	w.At(from, func() { w.loss = 1 })
	w.At(to, func() {
		w.failOver()
		w.loss = loss
	})
}

// change gives the processes another limit within two seconds. Until the last one has it, the larger limit is the bound.
func (w *world) change(when int64) {
	limit := 1 + w.rnd.Int64N(12)
	w.At(when, func() {
		for _, k := range w.keys {
			k.bound = max(k.bound, limit)
		}
	})
	for _, p := range w.procs {
		w.At(when+w.rnd.Int64N(2*second), func() { p.later(func() { p.adapt(limit) }) })
	}
	w.At(when+2*second, func() { w.settleLimit(limit) })
}

// settleLimit makes the new limit the bound when no process has the old one. Calls that began before go on, and do not count.
func (w *world) settleLimit(limit int64) {
	for _, p := range w.procs {
		if !p.gone && p.limit != limit {
			w.After(second/10, func() { w.settleLimit(limit) })
			return
		}
	}
	for _, k := range w.keys {
		k.bound, k.strict = limit, 0
		clear(k.running)
	}
	w.limit = limit
}

// patient is the time after which a waiting call starves if permits are free.
const patient = 8 * second

// watch looks for calls that starve: the permits of a first waiting call are free, and its process is a member that runs. A call for
// several permits starves only if no other call of the key begins: calls of other processes for fewer permits may overtake it.
func (w *world) watch() {
	for _, p := range w.procs {
		for _, h := range p.keys {
			if len(h.queued) == 0 {
				continue
			}
			k, c := w.keys[h.key], h.queued[0]
			if w.frees(p, h) < c.waiter.N || p.gone || w.Now < p.frozen || !p.member.Standing().Live(w.Now) {
				delete(k.stuck, c)
				continue
			}
			if k.stuck[c] == 0 || c.waiter.N > 1 && k.began > k.stuck[c] {
				k.stuck[c] = w.Now
			}
			if w.Now-k.stuck[c] == patient {
				w.bad = append(w.bad, fmt.Sprintf("%v: a call for %d starves at process %d, key %d", w.Now, c.waiter.N, p.index, h.key))
			}
		}
	}
}

// frees returns the permits that Redis could grant a process, with those that live processes hold and do not use. A
// live process knows of these, so it gives them back in a bounded time. Of permits that stay booked after a failover,
// their process does not know. They are in use until it sends a message that frees them: see forgot. There is no bound
// for that, because a process that holds nothing sends only for its next call. The time of a waiting call begins then.
func (w *world) frees(p *process, h *holding) int64 {
	m, now := w.redis.memory, w.micros()
	k := m.Keys[w.keys[h.key].name]
	if m.Epoch == 0 || now < m.Learn || k != nil && now < k.Learn {
		return 0
	}
	var used int64
	for _, q := range w.procs {
		switch {
		case q.gone || w.Now < q.frozen:
			if k != nil {
				used += k.Held[q.id].Permits
			}
		default:
			used += q.keys[h.key].Used() + q.staysBooked(h.key)
		}
	}
	if k != nil { // holdings of earlier identities and of dead processes
		var known int64
		for _, q := range w.procs {
			known += k.Held[q.id].Permits
		}
		used += k.Total - known
	}
	return min(w.limit, p.limit) - used
}

// collect asks for all permits of each key at one process. Without a call in flight, it must get them.
func (w *world) collect() {
	p := w.procs[0]
	for i := range w.keys {
		if n := p.keys[i].Used(); n != 0 {
			w.bad = append(w.bad, fmt.Sprintf("key %d: %d permits in use without a call", i, n))
		}
	}
	w.patience, w.share = rest, false
	calls := make([]*call, len(w.keys))
	for i := range w.keys {
		calls[i] = &call{key: i, lasts: 2 * rest}
		calls[i].waiter.N = p.limit
		p.later(func() { p.call(calls[i]) })
	}
	w.Run(span + calm + rest)
	for i, c := range calls {
		if c.runs {
			continue
		}
		what := fmt.Sprintf("key %d: not all of %d permits can be had again", i, p.limit)
		if w.asksFree(i) {
			w.kept = append(w.kept, what)
		} else {
			w.bad = append(w.bad, what)
		}
	}
}

// asksFree reports whether permits of a key stay booked because a failover has lost the give-backs of processes that did not ask for
// the key since, and whether a call for one permit at each of them frees all. Such a process has sent nothing to the tag, or nothing
// for so long that it does not tell its last message any more, or the answer that showed the gap was lost.
func (w *world) asksFree(key int) bool {
	var lost int64
	for _, q := range w.procs {
		if more := q.staysBooked(key); more > 0 {
			lost += more
			c := &call{key: key, lasts: second / 10}
			c.waiter.N = 1
			w.patience = second / 2
			q.later(func() { q.call(c) })
		}
	}
	if lost == 0 {
		return false
	}
	w.Run(w.Now + 3*second)
	p, all := w.procs[0], &call{key: key, lasts: rest}
	all.waiter.N, w.patience = p.limit, rest
	p.later(func() { p.call(all) })
	w.Run(w.Now + rest)
	return all.runs
}

// staysBooked returns the permits of a key that stay booked for a process: a failover has lost its give-back, and it
// does not know so.
func (p *process) staysBooked(key int) int64 {
	k := p.w.redis.memory.Keys[p.w.keys[key].name]
	if k == nil || !p.forgot(key) {
		return 0
	}
	return max(0, k.Held[p.id].Permits-p.keys[key].Booked())
}

// forgot reports whether a process can have a give-back of a key that the failover lost: see asksFree.
func (p *process) forgot(key int) bool {
	return !p.gone && p.keys[key].sent < p.w.failed && (p.sent < p.w.failed || p.silent >= 10*second || p.unheard)
}
