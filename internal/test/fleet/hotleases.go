package fleet

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

// The settings of package hybrid that a hot key depends on, with their defaults.
const (
	hotTick     = int64(5 * time.Millisecond)
	hotWait     = int64(20 * time.Millisecond)  // Config.MaxWait
	hotInterval = int64(50 * time.Millisecond)  // Config.SyncInterval
	hotTimeout  = int64(250 * time.Millisecond) // HubConfig.SyncTimeout; see census.Queueing
	hotSlow     = int64(100 * time.Millisecond) // breaker.Config.SlowCall
	hotOpenFor  = int64(500 * time.Millisecond) // breaker.Config.OpenFor
	hotFailures = 3                             // breaker.Config.Failures
	hotBeat     = int64(census.Every)
	hotBeatCost = 14 * time.Microsecond // of Redis, for a heartbeat: bench/REDIS.md
	hotEvery    = 1000                  // Config.SyncEvery
)

// hotLeases is a fleet of accounts in ModeStrict, with the sync engine reduced to one key. An op without an answer is
// sent again, with the envelope that makes Redis apply it once.
type hotLeases struct {
	w     *hotWorld
	parts []*hotPart
	procs []*hotProcess
}

type hotProcess struct {
	account account.Account
	waiters account.Waiters
	word    account.Budget
	left    int64
	loaded  int64 // ns
	until   int64 // ns
	due     int64 // ns; the next sync; never: none
	wants   account.Sync
	flight  *hotFlight
	share   fallback.OfKey
	part    *hotPart
	watch   parts.Watch

	knows    bool  // N, from a heartbeat
	failures int   // in a row
	opened   bool  // the breaker has been open
	rtt      int64 // ns, smoothed
	open     bool  // the breaker is not closed
	retryAt  int64 // ns; until then it permits no op
}

// hotFlight is an op that waits for its answer.
type hotFlight struct {
	op       algo.Op
	ans      algo.Answer
	applied  bool
	redisNow int64
	sent     int64
	attempt  int
	alone    bool // a call waits, and sends it itself if the fleet is small
}

func newHotLeases(w *hotWorld, maxLife int64) *hotLeases {
	h := &hotLeases{w: w}
	whole, n := account.NewPlan(w.s.Limit), int64(w.s.Processes)
	for nth := range max(1, w.s.Parts) {
		part := parts.Part{Nth: uint16(nth + 1), Of: uint16(max(1, w.s.Parts))}
		plan := whole.In(part)
		h.parts = append(h.parts, &hotPart{part: part, plan: plan, conditions: account.Conditions{
			Bucket: plan.Bucket, Limit: plan.Limit, Mode: account.ModeStrict, N: part.Among(n), Every: hotEvery, Interval: hotInterval,
			MaxLife: maxLife, RTT: int64(w.s.Latency), Tick: hotTick, MaxWait: hotWait, RelookIn: account.MaxView,
			Fallback: whole.Fallback(fallback.KindShare, 0, n),
		}})
	}
	if w.s.Dies > 0 {
		h.parts[len(h.parts)-1].hotServer.dies = int64(w.s.Dies)
	}
	for i := range w.s.Processes {
		home := parts.Home(fmt.Sprint("process ", w.s.Seed, " ", i), "k", len(h.parts))
		h.procs = append(h.procs, &hotProcess{
			due: never, knows: w.s.Sized, share: fallback.OfKey{Of: fallback.New(1), Key: "k"}, part: h.parts[max(0, int(home.Nth)-1)],
		})
	}
	for i := range h.procs {
		first := int64(0) // a cold start: all processes start at once
		if w.s.Step > 0 {
			first = w.rnd.Int64N(hotBeat)
		}
		w.At(first, func() { h.beat(i) })
	}
	return h
}

// terms returns the conditions of a process now.
func (h *hotLeases) terms(p *hotProcess) *account.Conditions {
	c := p.part.conditions
	c.Fallback.Share = p.share
	c.Broken = p.open
	return &c
}

// begin and end are around each event of an account, as in package hybrid.
func (h *hotLeases) begin(p *hotProcess) {
	spent, _ := p.account.Begin(p.left, h.w.Now)
	p.watch.Count(spent.Units, spent.Kind == account.DenyBudget)
	p.word, p.left = account.Budget{}, 0
}

func (h *hotLeases) end(p *hotProcess) {
	p.word, p.until = p.account.Load(h.terms(p), h.w.Now)
	p.loaded, p.left = h.w.Now, p.word.Units
}

func (h *hotLeases) call(i int) {
	p, now := h.procs[i], h.w.Now
	if p.word.Kind != account.NoBudget && now-max(p.loaded, p.until) < 2*hotTick {
		if p.word.Kind == account.DenyBudget {
			p.left++
			return
		}
		if p.left > 0 {
			p.left--
			h.w.admit(i)
			return
		}
	}
	h.begin(p)
	c := h.terms(p)
	v := p.account.Call(c, 1, now)
	if v.Action == account.Ask {
		waiter := account.NewWaiter(1, p.part.plan)
		p.waiters.Add(waiter)
		h.w.report.Waits++
		h.w.After(hotWait, func() { h.leave(i, waiter) })
	} else {
		h.decided(i, v)
	}
	p.wants = max(p.wants, v.Sync)
	h.end(p)
	h.poke(i)
}

// decided counts the verdict of a call.
func (h *hotLeases) decided(i int, v account.Verdict) {
	if v.Action == account.Admit {
		h.w.admit(i)
	}
	if v.Source != hybridlimit.SourceFallback {
		h.procs[i].watch.Count(1, v.Action != account.Admit)
	}
	if v.Source == hybridlimit.SourceFallback || v.Source == hybridlimit.SourceTimeout {
		h.w.away()
	}
}

// leave decides a call that has waited for MaxWait.
func (h *hotLeases) leave(i int, waiter *account.Waiter) {
	p := h.procs[i]
	if !waiter.Leave() {
		return
	}
	h.begin(p)
	v := p.account.TimedOut(h.terms(p), waiter.N, h.w.Now)
	h.decided(i, v)
	p.wants = max(p.wants, v.Sync)
	h.end(p)
	h.poke(i)
}

// poke sends the sync of a process when it is due.
func (h *hotLeases) poke(i int) {
	p, now := h.procs[i], h.w.Now
	switch p.wants {
	case account.SyncNow:
		p.due = min(p.due, now)
	case account.SyncLazily:
		p.due = min(p.due, now+hotInterval)
	}
	p.wants = account.SyncNot
	switch {
	case p.flight != nil || p.due == never:
		return
	case p.open:
		p.due = max(p.due, p.retryAt)
	}
	if p.due > now {
		h.w.At(p.due, func() { h.poke(i) })
		return
	}
	p.due = never
	p.waiters.Front()
	h.begin(p)
	op, _, ok := p.account.Send(h.terms(p), p.part.plan, &p.waiters, now)
	h.end(p)
	if !ok {
		h.look(i)
		return
	}
	p.flight = &hotFlight{op: op, sent: now, alone: p.waiters.Len() > 0 && p.failures == 0 && p.rtt > 0 && 4*p.rtt <= hotWait}
	h.send(i)
}

// look plans the time at which the process may have to return leased units.
func (h *hotLeases) look(i int) {
	p := h.procs[i]
	if at := p.account.LookAt(h.terms(p), h.w.Now); at > 0 && at < p.due {
		p.due = at
		h.w.At(at, func() { h.poke(i) })
	}
}

// send sends the op in flight of a process, once more if it was sent before.
func (h *hotLeases) send(i int) {
	p := h.procs[i]
	f := p.flight
	f.attempt++
	attempt, at, queueing := f.attempt, h.w.Now, h.queueing(p)
	current := func() bool { return p.flight == f && f.attempt == attempt }
	h.w.exchange(&p.part.hotServer, func() { p.part.apply(f, h.w.Now) }, func() {
		if current() {
			took := h.w.Now - at
			if p.rtt == 0 {
				p.rtt = took
			}
			p.rtt += (took - p.rtt) / 8
			h.heard(i, took > max(hotSlow, queueing*3/4))
			h.receive(i)
		}
	})
	timeout := max(hotTimeout, queueing)
	caller := attempt == 1 && f.alone && queueing <= hotTimeout
	if caller {
		timeout = hotWait
	}
	h.w.After(timeout, func() {
		if !current() {
			return
		}
		f.attempt++ // an answer that comes late is not read
		if !caller {
			h.heard(i, true)
		}
		pause := (5 + h.w.rnd.Int64N(5)) * int64(time.Millisecond) << min(f.attempt/2, 5)
		h.w.At(max(h.w.Now, p.retryAt)+pause, func() { h.send(i) })
	})
}

// queueing is the time that a message of a process may wait in the queue of Redis.
func (h *hotLeases) queueing(p *hotProcess) int64 {
	switch {
	case p.knows:
		return int64(census.Queueing(int64(h.w.s.Processes), int64(h.w.s.Batch)))
	case p.opened:
		return int64(census.Queueing(census.Guess, int64(h.w.s.Batch)))
	}
	return 0
}

// beat sends the heartbeats of a process. The first answer tells N.
func (h *hotLeases) beat(i int) {
	p, at, queueing, answered := h.procs[i], h.w.Now, h.queueing(h.procs[i]), false
	timeout := max(hotTimeout, queueing)
	if !p.knows {
		timeout *= 4
	}
	if p.open && at < p.retryAt && p.part == h.parts[0] {
		h.w.At(p.retryAt, func() { h.beat(i) })
		return
	}
	gone := false
	h.lookForPart(i)
	h.w.message(&h.parts[0].hotServer, min(h.w.s.RedisOp, hotBeatCost), func() {}, func() {
		if !gone {
			answered, p.knows = true, true
			if p.part == h.parts[0] { // there is a breaker for each server
				h.heard(i, h.w.Now-at > max(hotSlow, queueing*3/4))
			}
			h.w.At(max(h.w.Now, at+hotBeat), func() { h.beat(i) })
		}
	})
	h.w.After(timeout, func() {
		if gone = !answered; gone {
			if p.part == h.parts[0] {
				h.heard(i, true)
			}
			h.w.At(max(h.w.Now, at+hotBeat), func() { h.beat(i) })
		}
	})
}

// heard is the breaker.
func (h *hotLeases) heard(i int, failed bool) {
	p := h.procs[i]
	if !failed {
		p.failures, p.open, p.retryAt = 0, false, 0
		return
	}
	if p.failures++; p.failures < hotFailures {
		return
	}
	was := p.open
	openFor := max(hotOpenFor, h.queueing(p))
	p.open, p.opened, p.retryAt = true, true, h.w.Now+openFor/2+h.w.rnd.Int64N(openFor)
	if was {
		return
	}
	h.begin(p)
	p.account.StartFallback(h.terms(p), h.w.Now)
	h.end(p)
}

// apply runs an op in Redis, once.
func (q *hotPart) apply(f *hotFlight, at int64) {
	if f.applied {
		return
	}
	now := (hotEpoch + at) / 1000
	if q.state.Born != 0 && now >= q.dies {
		q.state = algo.State{}
	}
	next, ans, dirty := q.plan.Bucket.Apply(q.state, f.op, now)
	if dirty {
		q.state, q.dies = next, now+q.plan.Bucket.TTL(next)*1000
	}
	f.ans, f.applied, f.redisNow = ans, true, now
}

// receive takes the answer to the op in flight.
func (h *hotLeases) receive(i int) {
	p := h.procs[i]
	f := p.flight
	p.flight = nil
	h.begin(p)
	answered, next, _ := p.account.Receive(h.terms(p), p.part.plan, &p.waiters, account.Answer{
		Answer: f.ans, RedisNow: f.redisNow, Sent: f.sent, At: h.w.Now,
	}, h.w.Now)
	for _, waiter := range answered {
		h.decided(i, waiter.Verdict)
	}
	p.wants = max(p.wants, next)
	h.end(p)
	h.look(i)
	h.poke(i)
}
