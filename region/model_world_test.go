package region

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// This file models regions that share one key, in virtual time. Processes run the real account and the real course, and
// Redis runs the real arithmetic. Networks delay, lose, repeat and reorder messages. internal/account has the model of
// one region; this one has the parts of it that units from another region meet: leases, credit, envelopes, losses.

const (
	modelTick  = int64(5 * time.Millisecond)
	modelEpoch = 1_763_000_000_000_000 // µs of Redis time
	// modelLinger is the longest time (ns) that a message is on its way. A connection is closed after its time-out.
	modelLinger = int64(time.Second)
	// member is the time (ns) for which a silent process keeps its permits.
	member = int64(1800 * time.Millisecond)
)

// world is some regions.
type world struct {
	total   algo.Bucket
	regions []*modelRegion
	mutant  mutant
	promise bool // only the promise is checked, not the units under way
	greedy  bool // each op asks for a lease of all units: safety must not depend on small leases
	free    bool // all leases are free, and of all units
	now     int64
	ids     int
	started bool
	near    []nearMessage
	far     []farMessage
	spent   []spent
	worst   float64 // units above Burst + rate·t
	units   int64   // admitted
	allowed float64 // units above the bound, for faults
	moved   int64   // units given to a region
	landed  int64
	lost    int64 // units that were taken and not given
	trace   *strings.Builder
	bad     string
}

type spent struct{ at, n int64 }

// modelRegion is a region: its Redis and its processes.
type modelRegion struct {
	w      *world
	place  int
	plan   *account.Plan
	limit  algo.Limit
	terms  account.Conditions
	course *terms
	procs  []*proc
	cut    []bool // from these regions

	skew   int64 // µs by which its clock is ahead
	state  algo.State
	dies   int64 // µs
	env    map[int]envelope
	epoch  int64
	permit modelPermit
}

type envelope struct {
	seq, stamp, chain int64
	gap               bool
	ans               algo.Answer
	at                int64
}

// modelPermit is the permit of the key in a region.
type modelPermit struct {
	holder *proc
	id     int   // of the holder; 0: the permit is free
	learns int64 // ns; before that Redis grants none, because it was wiped
}

// proc is one process.
type proc struct {
	id      int
	r       *modelRegion
	s       account.Account
	word    account.Budget
	left    int64
	loaded  int64
	until   int64
	waiters account.Waiters
	calls   []*modelCall
	seq     int64
	frozen  *frozen
	epoch   int64
	lost    int64
	asleep  int64 // ns; it does not run before
	mute    bool  // its heartbeats and syncs do not reach Redis
	beat    int64 // ns; the last heartbeat
	born    int64
	evicted int64 // ns; negative: never

	course *course
	got    int64 // ns; the permit of the units under way was asked for; negative: they were given too late
	gave   int64 // ns; units were given
	holds  bool
}

type modelCall struct {
	*account.Waiter
	at   int64
	done bool
}

type frozen struct {
	op   algo.Op
	seq  int64
	sent int64
	give int64 // op.Refund: units from other regions
	got  int64 // as proc.got
	here bool  // Redis has the units
}

// nearMessage is between a process and its Redis.
type nearMessage struct {
	p     *proc
	id    int
	f     *frozen
	sent  int64
	reply *reply
}

type reply struct {
	ans   algo.Answer
	gap   bool
	epoch int64
	now   int64
	at    int64
}

// farMessage is between a process and the Redis of another region.
type farMessage struct {
	p     *proc
	id    int
	to    int // donor
	n     int64
	sent  int64 // the ask
	round int64 // course.asked, by which a late reply is known
	reply bool
	ans   algo.Answer
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%12.3f ms  ", float64(w.now)/1e6)
		fmt.Fprintf(w.trace, format+"\n", args...)
	}
}

func (w *world) fail(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
		w.logf("BROKEN: %s", w.bad)
	}
}

// newModelRegion adds a region with a part of the limit.
func (w *world) newModelRegion(limit hybridlimit.Limit, t *terms, c account.Conditions, procs int) {
	r := &modelRegion{w: w, place: len(w.regions), plan: account.NewPlan(limit), limit: algo.LimitOf(limit), course: t, env: map[int]envelope{}}
	c.Bucket, c.Limit, c.N = r.plan.Bucket, limit, int64(procs)
	c.RTT, c.Tick, c.Interval, c.RelookIn = int64(time.Millisecond), modelTick, int64(50*time.Millisecond), account.MaxView
	c.Fallback = account.Fallback{Size: fallback.Size{Kind: fallback.KindDenyAll}}
	r.terms = c
	for range procs {
		r.procs = append(r.procs, &proc{})
	}
	w.regions = append(w.regions, r)
	for i := range r.procs {
		w.start(r, i)
	}
}

// born is the time at which processes start: of a warm world, long ago.
func (w *world) born() int64 {
	if w.started {
		return w.now
	}
	return 0
}

func (w *world) start(r *modelRegion, i int) {
	w.ids++
	*r.procs[i] = proc{id: w.ids, r: r, beat: w.now, born: w.born(), evicted: -1, course: newCourse(r.course)}
}

// conditions returns the conditions of an event.
func (p *proc) conditions() *account.Conditions {
	c := p.r.terms
	c.Lost, c.Blind = p.lost, account.MayBeFull(p.r.plan.Full, p.born, p.evicted, p.r.w.now)
	return &c
}

func (w *world) begin(p *proc) {
	p.s.Begin(p.left, w.now)
	p.word, p.left = account.Budget{}, 0
}

func (w *world) end(p *proc) {
	p.word, p.until = p.s.Load(p.conditions(), w.now)
	p.loaded, p.left = w.now, p.word.Units
}

func (w *world) admit(p *proc, n, at int64) {
	w.spent, w.units = append(w.spent, spent{at, n}), w.units+n
}

// call is a call for n units: the fast path, then the slow one.
func (w *world) call(p *proc, n int64) {
	n = min(n, p.r.plan.Burst)
	if w.now-max(p.loaded, p.until) < 2*modelTick {
		switch {
		case p.word.Kind == account.DenyBudget:
			p.left += n
			p.course.deny(float64(n), n, w.now)
			return
		case p.word.Kind != account.NoBudget && p.left >= n:
			p.left -= n
			w.admit(p, n, w.now)
			w.logf("r%d p%d spends %d of its budget", p.r.place, p.id, n)
			return
		}
	}
	w.begin(p)
	v := p.s.Call(p.conditions(), n, w.now)
	w.logf("r%d p%d asks for %d: %v; held %d, owed %d", p.r.place, p.id, n, v.Action, p.s.Held(), p.s.Owed())
	switch v.Action {
	case account.Ask:
		c := account.NewWaiter(n, p.r.plan)
		p.waiters.Add(c)
		p.calls = append(p.calls, &modelCall{Waiter: c, at: w.now})
	case account.Admit:
		w.admit(p, n, w.now)
	case account.Deny:
		p.course.deny(float64(n), n, w.now)
	}
	w.end(p)
}

// leave makes calls leave that have waited for MaxWait; all: every call leaves.
func (w *world) leave(p *proc, all bool) {
	for _, c := range p.calls {
		if !all && w.now-c.at < p.r.terms.MaxWait || !c.Leave() {
			continue
		}
		c.done = true
		w.begin(p)
		if v := p.s.TimedOut(p.conditions(), c.N, w.now); v.Action == account.Admit {
			w.admit(p, c.N, w.now)
		}
		w.end(p)
	}
	p.calls = slices.DeleteFunc(p.calls, func(c *modelCall) bool { return c.done })
}

// freeze sends a sync.
func (w *world) freeze(p *proc) bool {
	if p.frozen != nil {
		return false
	}
	p.waiters.Front()
	w.begin(p)
	c := p.conditions()
	op, _, ok := p.s.Send(c, p.r.plan, &p.waiters, w.now)
	if !ok {
		w.end(p)
		return false
	}
	if w.greedy && c.Mode != account.ModeDeferred && !op.AsksByView() && !op.OnlyPays() {
		op.Div, op.Demand = 1, 1<<40
	}
	p.seq++
	p.frozen = &frozen{op: op, seq: p.seq, sent: w.now, give: op.Refund, got: p.got}
	w.logf("r%d p%d syncs: owed %d, asks %v, refund %d", p.r.place, p.id, op.Owed, op.Asks, op.Refund)
	w.end(p)
	w.send(p)
	return true
}

func (w *world) send(p *proc) {
	if !p.mute {
		w.near = append(w.near, nearMessage{p: p, id: p.id, f: p.frozen, sent: w.now})
	}
}

// tick returns the time of a Redis, and forgets a state whose time is over.
func (r *modelRegion) tick(now int64) int64 {
	at := modelEpoch + now/1000 + r.skew
	if r.state.Born != 0 && at >= r.dies {
		r.state = algo.State{}
	}
	return at
}

// run applies an op.
func (r *modelRegion) run(op algo.Op, at int64) algo.Answer {
	w := r.w
	if w.free {
		op.Div = 0
	}
	next, ans, dirty := r.limit.Apply(r.state, op, at)
	if w.free && op.Demand > 0 && ans.Life > 0 && ans.Granted == op.Asked() {
		ans.Lease = r.limit.Bucket.Units(next.Level)
		next.Level, next.Since = next.Level-ans.Lease*r.limit.Bucket.Unit, next.Since+ans.Lease
		ans.Level, ans.Born, dirty = next.Level, next.Born, dirty || ans.Lease > 0
	}
	if dirty {
		r.state, r.dies = next, at+r.limit.TTL(next, at)*1000
	}
	return ans
}

// apply runs a sync, as lua/batch.lua does.
func (r *modelRegion) apply(id int, f *frozen, now int64) (rep reply, ok bool) {
	at := r.tick(now)
	op, env, have := f.op, envelope{}, false
	if env, have = r.env[id]; have && env.seq > f.seq {
		return rep, false
	}
	if r.epoch == 0 {
		r.epoch = at
	}
	rep = reply{epoch: r.epoch, now: at, at: now}
	seen := have && env.seq == f.seq
	rep.gap = f.seq > 1 && (!have || env.seq < f.seq-1) || seen && env.gap
	op.Lost = op.Lost || rep.gap
	chain := at
	if have && !rep.gap && env.chain <= at {
		chain = env.chain
	}
	op.Broken = op.View.At < chain
	if seen && r.state.Born != 0 && r.state.Born <= env.stamp {
		_, ans, _ := r.limit.Apply(r.state, algo.Op{}, at)
		ans.Granted, ans.Lease, ans.Life, ans.Gen, ans.Refused = env.ans.Granted, env.ans.Lease, env.ans.Life, env.ans.Gen, env.ans.Refused
		rep.ans, rep.at = ans, env.at
	} else {
		rep.ans = r.run(op, at)
		r.w.land(r, id, f)
	}
	r.env[id] = envelope{f.seq, max(at, rep.ans.Born), chain, rep.gap, rep.ans, rep.at}
	return rep, true
}

// land counts units from another region that Redis gets. Those that come when their process may have lost its permit
// are allowed on top, once.
func (w *world) land(r *modelRegion, id int, f *frozen) {
	if f.give == 0 {
		return
	}
	if f.here = true; w.late(f.got) {
		w.allowed += float64(f.give)
	}
	w.landed += f.give
	w.logf("r%d gets %d units", r.place, f.give)
}

// settle gives a reply to its process.
func (w *world) settle(p *proc, rep reply) {
	f := p.frozen
	p.frozen = nil
	w.begin(p)
	if rep.gap || p.epoch != 0 && p.epoch != rep.epoch {
		p.lost = w.now
	}
	p.epoch = rep.epoch
	answered, _, _ := p.s.Receive(p.conditions(), p.r.plan, &p.waiters, account.Answer{Answer: rep.ans, RedisNow: rep.now, Sent: f.sent, At: rep.at}, w.now)
	w.logf("r%d p%d hears: granted %d, lease %d for %d µs (ledger %v), level %.2f; held %d", p.r.place, p.id, rep.ans.Granted, rep.ans.Lease, rep.ans.Life,
		rep.ans.Gen != 0, float64(rep.ans.Level)/float64(p.r.plan.Bucket.Unit), p.s.Held())
	for _, c := range answered {
		switch {
		case c.Verdict.Action == account.Admit && c.Verdict.Reason == account.Granted:
			w.admit(p, c.N, rep.at)
		case c.Verdict.Action == account.Admit:
			w.admit(p, c.N, w.now)
		case c.Verdict.Action == account.Deny:
			p.course.deny(float64(c.N), c.N, w.now)
		}
		for _, m := range p.calls {
			m.done = m.done || m.Waiter == c
		}
	}
	p.calls = slices.DeleteFunc(p.calls, func(c *modelCall) bool { return c.done })
	w.end(p)
}

// round answers the sync of p at once. If there is none, it sends one before.
func (w *world) round(p *proc) {
	if p.frozen == nil && !w.freeze(p) || p.mute {
		return
	}
	if rep, ok := p.r.apply(p.id, p.frozen, w.now); ok {
		w.settle(p, rep)
	}
}

// there returns the units that calls could have at this instant, in all regions.
func (w *world) there() (units int64) {
	for _, r := range w.regions {
		left := r.limit.Bucket.Load(r.state, r.tick(w.now)).Level
		var held, owed int64
		for _, p := range r.procs {
			a := p.s
			a.Begin(p.left, w.now)
			if w.now >= p.asleep {
				held += a.Held()
			}
			owed += a.OwedLately()
		}
		units += max(0, r.limit.Bucket.Units(left)-owed) + held
	}
	return units
}

// late reports whether the permit that was asked for at a time may be another's.
func (w *world) late(got int64) bool { return got >= 0 && w.now-got >= member-int64(time.Second) }

// under returns the units that are under way to a region.
func (r *modelRegion) under() (units int64) {
	for _, p := range r.procs {
		if n := p.s.GivenBack(); n > 0 && !r.w.late(p.got) {
			if units += n; p.frozen != nil && p.frozen.here {
				units -= p.frozen.give
			}
		}
	}
	for _, m := range r.w.far {
		if p := m.p; m.reply && p.r == r && p.id == m.id && p.course.asked == m.round && r.w.now-m.sent < int64(askFor) {
			units += m.ans.Granted
		}
	}
	return units
}

// check compares the admissions, and the units that calls could have now, with the promise.
func (w *world) check() {
	slices.SortStableFunc(w.spent, func(a, b spent) int { return cmp.Compare(a.at, b.at) })
	m := meter.NewBucket(w.total)
	for _, s := range w.spent { // all, because a call that waited counts when Redis granted it
		m.Admit(s.at, s.n)
	}
	m.Admit(w.now, w.there())
	w.worst = max(w.worst, m.Excess())
	if bound := w.bound(); w.worst > bound+2*float64(w.total.Refill)/float64(w.total.Unit)+1e-9 {
		w.fail("excess %.3f, allowed %.3f", w.worst, bound)
	}
	for _, r := range w.regions {
		if n := r.under(); n > r.course.under && !w.promise {
			w.fail("%d units are under way to r%d, at most %d", n, r.place, r.course.under)
		}
	}
}

// bound returns the units that may be admitted above Burst + rate·t.
func (w *world) bound() float64 {
	sum := w.allowed
	for _, r := range w.regions {
		sum += float64(int64(len(r.procs)) * r.terms.Credit)
	}
	return sum
}
