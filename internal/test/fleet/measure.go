package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// A decision may come one tick later than MaxWait.
const (
	maxWait = 20 * time.Millisecond
	slack   = 5 * time.Millisecond
)

// call is one decision. Times are ns since the start of the load.
type call struct {
	at, end   int64
	spent     int64 // the time at which the call counts; if Redis granted it, the time of the grant
	delay     int64 // queue: the delay until the call may go
	cost      int64
	key       int32
	process   int32 // the process of the load; a restarted process keeps its number
	source    hybridlimit.Source
	view      int8 // of process.views
	allowed   bool
	important bool // critical
	spike     bool // of a spike
	void      bool // no decision: the process ended meanwhile
}

// decisions returns all calls that were decided, in the order of their start.
func (w *world) decisions() []*call {
	var all []*call
	for _, p := range w.procs {
		all = append(all, p.journal...)
	}
	all = slices.DeleteFunc(all, func(c *call) bool { return c.void })
	slices.SortFunc(all, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.process, b.process))
	})
	return all
}

// told returns the units whose admission was returned to callers.
func (w *world) told() (units int64) {
	for _, p := range w.procs {
		for _, c := range p.journal {
			if c.allowed {
				units += c.cost
			}
		}
	}
	return units
}

// measure fills in the report, except for the accounts, which settle fills in.
func (w *world) measure(r *Report) {
	all := w.decisions()
	r.Ops, r.Messages, r.Heartbeats = w.ops, w.messages.Load(), w.beats.Load()
	r.BySource, r.Timeline = map[hybridlimit.Source]int64{}, make([]Sample, len(w.tenths))
	for i := range r.Timeline {
		r.Timeline[i] = Sample{At: time.Duration(i) * SampleEvery, Messages: w.tenths[i].Load()}
	}
	r.count(w, all)
	r.Central = w.central(all)
	switch {
	case r.Central > 0:
		r.Utilisation = float64(r.Units) / float64(r.Central)
	case r.Units == 0:
		r.Utilisation = 1
	}
	w.meter(r, all)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Violated = w.violated
}

// count adds up the figures that do not depend on the order of the calls: sums, Jain's index, and the acceptance by
// process.
func (r *Report) count(w *world, all []*call) {
	last := len(r.Timeline) - 1
	calls, admitted, units := make([]int64, w.newest), make([]int64, w.newest), make([]float64, w.newest) // by process
	for _, c := range all {
		r.BySource[c.source]++
		took := time.Duration(c.end - c.at)
		r.Slowest = max(r.Slowest, took)
		r.Timeline[c.at/int64(SampleEvery)].Offered += c.cost
		if c.allowed {
			r.Timeline[min(c.spent/int64(SampleEvery), int64(last))].Admitted += c.cost
		}
		if !w.steady(c) {
			continue
		}
		if took > 0 {
			r.Waited++
		}
		tally := func(is bool, calls, admitted *int64) {
			if is {
				*calls++
			}
			if is && c.allowed {
				*admitted++
			}
		}
		tally(true, &r.Calls, &r.Admitted)
		tally(c.important, &r.CriticalCalls, &r.CriticalAdmitted)
		tally(c.spike, &r.SpikeCalls, &r.SpikeAdmitted)
		tally(true, &calls[c.process], &admitted[c.process])
		if c.allowed {
			r.Units += c.cost
			units[c.process] += float64(c.cost)
		}
	}
	if r.Slowest > maxWait+slack {
		w.violate("a decision took %v", r.Slowest)
	}
	r.Acceptance = make([]float64, w.newest)
	var n, sum, squares float64
	for i := range calls {
		if calls[i] == 0 {
			continue
		}
		r.Acceptance[i] = float64(admitted[i]) / float64(calls[i])
		n, sum, squares = n+1, sum+units[i], squares+units[i]*units[i]
	}
	r.Jain = jain(n, sum, squares)
}

// jain returns Jain's index of n numbers, by their sum and the sum of their squares.
func jain(n, sum, squares float64) float64 {
	if squares == 0 {
		return 1
	}
	return sum * sum / (n * squares)
}

func (w *world) steady(c *call) bool { return c.at >= int64(w.s.Steady) }

// central returns the units that one limiter per key admits of the same calls.
func (w *world) central(all []*call) (units int64) {
	changes, limiters := w.s.Changes, make([]*central, len(w.keys))
	for i := range limiters {
		limiters[i] = newCentral(w.s.Limit)
	}
	for _, c := range all {
		for ; len(changes) > 0 && int64(changes[0].At) <= c.at; changes = changes[1:] {
			for _, l := range limiters {
				l.limit = algo.LimitOf(changes[0].Limit)
			}
		}
		if ok, _ := limiters[c.key].take(w.start.UnixNano()+c.at, c.cost); ok && w.steady(c) {
			units += c.cost
		}
	}
	return units
}

// meter feeds the calls to the meters in the order of the times at which they count. It sorts all.
func (w *world) meter(r *Report, all []*call) {
	slices.SortStableFunc(all, func(a, b *call) int { return cmp.Compare(a.spent, b.spent) })
	meters, fair := make([]meter.Meter, len(w.keys)), make([]meter.Meter, len(w.keys))
	for i := range meters {
		meters[i], fair[i] = meter.Of(w.s.Limit), meter.Of(w.s.Limit)
	}
	promised, changes := w.promised(), w.s.Changes
	for _, c := range all {
		at := w.clock(c.spent)
		promised = w.changeMeters(meters, promised, c.spent)
		changes = w.changeMeters(fair, changes, c.spent)
		switch {
		case c.allowed:
			meters[c.key].Admit(at, c.cost)
			fair[c.key].Admit(at, c.cost)
			if w.vague(c) {
				r.Vague += c.cost
			}
		case fair[c.key].Holds(at, c.cost):
			fair[c.key].Admit(at, c.cost) // otherwise one wasted unit would make each later denial false
			if w.steady(c) {
				r.FalseDenials++
			}
		}
	}
	for _, m := range meters {
		r.Exceedance = max(r.Exceedance, m.Excess())
	}
	if w.s.Limit.Algorithm == hybridlimit.AlgLeakyQueue {
		w.leave(r, all)
	}
}

// changeMeters applies the changes that are due to meters of buckets, and returns the others.
func (w *world) changeMeters(meters []meter.Meter, changes []Change, now int64) []Change {
	for ; len(changes) > 0 && int64(changes[0].At) <= now; changes = changes[1:] {
		for _, m := range meters {
			m.(*meter.Bucket).Change(w.clock(int64(changes[0].At)), algo.BucketOf(changes[0].Limit))
		}
	}
	return changes
}

// promised returns the limits that the fleet has to keep, with the times from which on it has to. While a process has
// not heard of a change, the larger rate and the larger burst of the two limits bound the fleet.
func (w *world) promised() (all []Change) {
	have := w.s.Limit
	for _, c := range w.s.Changes {
		larger := c.Limit
		if perSecond(have) > perSecond(larger) {
			larger.Rate, larger.Period = have.Rate, have.Period
		}
		larger.Burst = max(c.Limit.BurstSize(), have.BurstSize())
		all = append(all, Change{c.At, larger}, Change{c.At + hearing, c.Limit})
		have = c.Limit
	}
	return all
}

func perSecond(l hybridlimit.Limit) float64 { return float64(l.Rate) / l.Period.Seconds() }

// leave feeds the calls to the meters in the order in which they leave their queue. It sorts all.
func (w *world) leave(r *Report, all []*call) {
	slices.SortStableFunc(all, func(a, b *call) int { return cmp.Compare(a.end+a.delay, b.end+b.delay) })
	outputs := make([]*meter.Output, len(w.keys))
	for i := range outputs {
		outputs[i] = meter.NewOutput(algo.BucketOf(w.s.Limit))
	}
	for _, c := range all {
		if c.allowed {
			outputs[c.key].Leave(c.end+c.delay, c.cost)
		}
	}
	for _, o := range outputs {
		r.Exceedance = max(r.Exceedance, o.Excess())
	}
}

// vague reports whether a call may belong to another time than measured. The answer of one that Redis granted may have
// been late: it belongs to the window before, or, in a log, to any earlier time. One that a process granted in the
// first µs of a window may belong to the window before, because processes know Redis's time in whole µs.
func (w *world) vague(c *call) bool {
	period := int64(w.s.Limit.Period)
	late := c.source == hybridlimit.SourceRedis && c.end-c.at > int64(w.s.Latency)
	switch w.s.Limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow:
		if c.source != hybridlimit.SourceRedis {
			return w.clock(c.spent)%period < int64(time.Microsecond)
		}
		return late && w.clock(c.at)/period != w.clock(c.spent)/period
	case hybridlimit.AlgSlidingLog:
		return late
	}
	return false
}
