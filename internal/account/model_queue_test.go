package account

import (
	"cmp"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is the part of the model that belongs to queues. A queue promises that the fleet forwards no faster than the rate,
// and that each forward is late by at most the time that its answer was on its way.

// forwards records when the calls of a fleet are forwarded.
type forwards struct {
	calls []forward
	told  int64         // ns; the longest delay that a call was told
	late  int64         // ns; the longest time that an answer was on its way
	early int64         // ns; the longest time by which a slot was taken to be earlier than it is
	lead  map[int]int64 // ns; the lead of Redis's clock as each process estimates it
}

// forward is one call: its time in ns, and its units. The next units may be forwarded n slots later.
type forward struct{ at, n int64 }

// forward counts a call that is forwarded after a delay.
func (w *world) forward(n, delay int64) {
	if !w.t.Bucket.Queue || n <= 0 {
		return
	}
	if w.mutant == mutSlotsAtOnce {
		delay = 0
	}
	w.forwards.calls = append(w.forwards.calls, forward{w.now + delay, n})
	w.forwards.told = max(w.forwards.told, delay)
}

// dated returns a reply with the time at which Redis answered. The process estimates this time like redisClock of package
// hybrid: from the answer that was on its way for the shortest time, and never outside the time of the exchange.
func (w *world) dated(p *proc, sent int64, r modelReply) Answer {
	a := Answer{Answer: r.ans, RedisNow: r.now, Sent: sent}
	if !w.t.Bucket.Queue {
		return a
	}
	f := &w.forwards
	if f.lead == nil {
		f.lead = map[int]int64{}
	}
	redis := r.now - modelEpoch // µs
	least, most := redis*1000-w.now, redis*1000+999-sent
	lead, known := f.lead[p.id]
	switch {
	case !known || lead < least:
		lead = least
	case lead > most:
		lead = most
	}
	f.lead[p.id] = lead
	a.At = max(sent, min(redis*1000-lead, w.now))
	if r.ans.Granted+r.ans.Lease > 0 { // another answer forwards no call
		f.late = max(f.late, w.now-r.at)
	}
	if len(w.redis.skews) > 0 { // the estimate may be wrong
		f.early = max(f.early, w.now-sent)
	}
	return a
}

// lasts returns how long Redis takes at a Redis time to serve the content of the queue, in µs.
func (r *modelRedis) lasts(at int64) int64 {
	if !r.bucket.Queue || r.state.Born == 0 {
		return 0
	}
	frozen := max(r.state.Last-at, 0)
	if frozen > algo.ClockSlack {
		frozen = 0
	}
	if wait := r.bucket.WaitFull(r.peek(algo.Op{}, at).Level); wait > 0 {
		return wait + frozen
	}
	return 0
}

// noteStep records by how much a step of the clock makes the next place earlier. A step forward does it by no more than the
// step. A step back does it if it ends the freeze that earlier steps back caused, which lasts at most algo.ClockSlack. lasted
// is the result of lasts before the step to at.
func (w *world) noteStep(lasted, at, step int64) {
	sooner := max(0, lasted-w.redis.lasts(at))
	most := step
	if step < 0 {
		most = algo.ClockSlack
	}
	if sooner > most {
		w.fail("a step of %d µs makes the next place %d µs earlier", step, sooner)
	}
	w.redis.sooner += sooner
}

// noteShorter allows a burst of the larger limit for each op that follows an op under another limit. A faster limit serves the
// content in less time, and a smaller burst forgets a part of the content. The calls in the queue keep their times.
func (r *modelRedis) noteShorter() {
	if r.bucket.Queue && r.state.Born != 0 && r.writer != r.limit {
		r.sooner += max(r.writer.Bucket.WaitFull(0), r.bucket.WaitFull(0))
	}
}

// pace returns the largest time in ns by which a group of forwards is closer than the rate allows. All calls of a group but one
// need their slots within the group. A call that has several slots is forwarded at the first.
func (f *forwards) pace(p *Plan) int64 {
	slices.SortStableFunc(f.calls, func(a, b forward) int { return cmp.Compare(a.at, b.at) })
	worst := int64(0)
	for i := range f.calls {
		units, most := int64(0), int64(0)
		for _, c := range f.calls[i:] {
			units, most = units+c.n, max(most, c.n)
			slots := float64(units-most) * float64(p.Bucket.Unit) / float64(p.Bucket.Refill) * 1000
			worst = max(worst, int64(slots)-(c.at-f.calls[i].at))
		}
	}
	return worst
}

// checkQueue compares the pace of the forwards with the theorem. Redis counts whole µs. Units that Redis forgot, or never heard
// of, may be forwarded in addition: allowed is their number in sub-units.
func (w *world) checkQueue(o *outcome, allowed int64) {
	worst := w.forwards.pace(w.plan)
	slots := float64(allowed) / float64(w.t.Bucket.Refill) * 1000
	o.excess = float64(worst) / float64(w.plan.Each())
	f := &w.forwards
	if limit := f.late + f.early + (w.redis.sooner+3)*1000 + int64(slots); worst > limit {
		w.fail("forwards are %v closer than the rate allows, permitted %v", time.Duration(worst), time.Duration(limit))
	}
	// No call is told a later time than that of the last place.
	last := int64(w.plan.Full) + 2*int64(time.Microsecond)
	if len(w.redis.skews) == 0 && w.other.Rate == 0 && f.told > last {
		w.fail("a call is to wait for %v, the whole queue takes %v", time.Duration(f.told), time.Duration(last))
	}
}

// spoilBlocks keeps slots whose time has passed, for a mutant.
func (w *world) spoilBlocks(p *proc) {
	if w.mutant != mutSlotsStay {
		return
	}
	for i := range p.s.leases {
		if l := &p.s.leases[i]; l.each > 0 && l.next < w.now {
			l.end += w.now - l.next
			l.next = w.now
		}
	}
}
