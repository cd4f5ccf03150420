package account

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// world is a fleet on one key in virtual time: processes that run the real
// step, one Redis that runs the real arithmetic, and a network that may delay,
// lose, duplicate and reorder. It stands in for entry.go and for the sync
// engine; what these do with locks and goroutines it does not know.
type world struct {
	plan   *Plan
	other  hybridlimit.Limit // see setLimit; no Rate: there is none
	t      Conditions        // of every process; n is how many there are
	greedy bool              // every op asks for all there is as a lease: safety must not rest on modest sizes
	mutant mutant
	redis  modelRedis
	procs  []*proc
	net    []message
	now    int64 // ns
	ids    int

	spending meter // what the theorem counts: see admitWaiter
	receipt  meter // the same, with waiting calls counted when they were told

	expired, lost, dropped, forgiven int64 // units
	untold                           int64 // of dropped, what may come on top: see giveUp
	late                             int64 // units that came more than a window late
	waited                           int64 // calls

	losses  lossBook
	members *memberBook // nil: N is a constant

	trace *strings.Builder
	bad   string // the first broken invariant
}

// proc is one process: what entry and the engine keep besides the step.
type proc struct {
	id      int // another after each restart
	s       Account
	born    int64
	evicted int64 // ns; negative: never
	word    Budget
	left    int64 // in the word
	loaded  int64
	until   int64 // it is good
	plan    *Plan
	next    *Plan // that SetLimit brought, until the key meets it; nil: none
	waiters Waiters
	calls   []*waitingCall // of waiters, in order
	seq     int64
	frozen  *frozenOp
	wants   Sync
	asleep  int64 // until then it does nothing: a paused process
	credit  int64 // C as this process believes, at most the world's
	broken  bool  // its breaker is open
	epoch   int64 // that the last answer told
	lost    int64 // ns; when it was last told of a loss
	own     int64 // a mutant's: what it has used itself
	gaveUp  int64 // units that it gave up since its view came
	member

	admitted int64 // units
}

type waitingCall struct {
	*Waiter
	at int64 // ns; since when
}

type frozenOp struct {
	op    algo.Op
	plan  *Plan
	batch modelBatch
	sent  int64
}

// message is a request, or a reply where there is one.
type message struct {
	batch modelBatch
	plan  *Plan // of op
	op    algo.Op
	reply *modelReply
}

func newWorld(t Conditions, procs int) *world {
	w := &world{t: t, plan: NewPlan(t.Limit)}
	w.redis = modelRedis{limit: algo.LimitOf(t.Limit), bucket: t.Bucket, env: map[int]modelEnvelope{}}
	w.redis.expired = w.lostAgain
	for range procs {
		w.procs = append(w.procs, &proc{})
	}
	for i := range w.procs {
		w.start(i)
	}
	return w
}

func (w *world) start(i int) {
	w.ids++
	*w.procs[i] = proc{id: w.ids, born: w.now, evicted: -1, credit: w.t.Credit, plan: w.plan}
	w.join(w.procs[i])
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

// terms is what the limiter tells the step.
func (w *world) terms(p *proc) *Conditions {
	t := w.t
	t.Credit, t.Lost, t.Broken = p.credit, p.lost, p.broken
	if w.other.Rate > 0 {
		t.Bucket, t.Window, t.Limit, t.Credit = p.plan.Bucket, p.plan.Window, p.plan.Limit, min(t.Credit, p.plan.Burst/max(1, t.N-1))
	}
	w.memberTerms(p, &t)
	full := int64(t.Limit.TimeToFull())
	if w.mutant == mutBlindSoon {
		full /= 2
	}
	if w.mutant == mutUncapped && t.Credit > 0 {
		t.Credit = t.Limit.BurstSize()
	}
	t.Blind = w.mutant == mutBlind || t.Blind && MayBeFull(full, p.born, p.evicted, w.now)
	return &t
}

// begin takes back the word and expires leases, as entry.begin.
func (w *world) begin(p *proc) {
	_, expired := p.s.Begin(p.left, w.now)
	p.word, p.left = Budget{}, 0
	w.expired += expired
}

// end loads the word, as entry.end.
func (w *world) end(p *proc) {
	t := w.terms(p)
	held := p.s.Held()
	restore := w.forgetInflight(p)
	restoreView := w.stretchWord(p)
	p.word, p.until = p.s.Load(t, w.now)
	restoreView()
	credit := p.s.creditLeft(t, w.now)
	restore()
	p.loaded, p.left = w.now, p.word.Units
	w.noteCredit(p, t.Credit)
	switch {
	case p.word.Units < 0, p.s.pending < 0, p.s.inflight < 0, p.s.leases[0].units < 0, p.s.leases[1].units < 0:
		w.fail("negative: %+v", p.s)
	case p.word.Kind == LeaseBudget && p.word.Units > held:
		w.fail("the word has %d units of %d held", p.word.Units, held)
	case p.word.Kind == CreditBudget && p.word.Units > credit:
		w.fail("the word has %d units of %d on credit", p.word.Units, credit)
	case p.word.Kind == DenyBudget && p.word.Units != 0:
		w.fail("a word of denials starts at %d", p.word.Units)
	}
}

// void has p's common path look again, as clock.void.
func (w *world) void(p *proc) { p.loaded, p.until = w.now-2*w.t.Tick, w.now-2*w.t.Tick }

// spend is the common path: it takes n units of the word, if the word is still
// good. An epoch lasts one tick, and the next may be a tick late.
func (w *world) spend(p *proc, n int64) bool {
	until := max(p.loaded, p.until)
	if w.members != nil && p.word.Kind == CreditBudget {
		until = max(p.loaded, min(until, p.fleet.Ends()))
	}
	if late := w.now-until >= 2*w.t.Tick; late && w.mutant != mutLateWord || p.word.Kind == NoBudget {
		return false
	}
	if p.word.Kind == DenyBudget {
		if w.now-until < w.t.Tick {
			w.checkDenial(p, n)
		}
		p.left += n
		return true
	}
	if p.left < n {
		return false
	}
	p.left -= n
	w.admit(p, n)
	w.logf("p%d spends %d of its word (%s)", p.id, n, p.word.Kind)
	return true
}

func (w *world) admit(p *proc, n int64) {
	p.admitted += n
	w.spending.admit(w.now, n)
	w.receipt.admit(w.now, n)
}

// adapt gives p another plan, as entry.adapt.
func (w *world) adapt(p *proc, plan *Plan) {
	if old := p.plan; plan != old {
		w.begin(p)
		p.plan = plan
		p.s.Adapt(old, plan, w.t.Fallback, w.now)
	}
}

// setLimit gives p the other of two limits, as Limiter.SetLimit: its keys meet it with their next call. No other process hears of it.
func (w *world) setLimit(p *proc) {
	limit := w.other
	if (p.next == nil && p.plan.Limit == w.other) || (p.next != nil && p.next.Limit == w.other) {
		limit = w.t.Limit
	}
	p.next = NewPlan(limit)
	p.next.Began = max(1, w.now)
	// While processes have different limits, a lease that was sized by a slower one may outlive the time in which a faster one fills the
	// bucket up. It is a part of a burst, and so much may come on top for each change.
	w.losses.gained += w.t.Bucket.Cap
	w.void(p)
	w.logf("p%d gets %v", p.id, limit)
}

// burst is the most that a call of p may cost.
func (w *world) burst(p *proc) int64 {
	if p.next != nil {
		return p.next.Burst
	}
	return p.plan.Burst
}

// call is one decision on the slow path, and whether it waits.
func (w *world) call(p *proc, n int64) Verdict {
	if p.next != nil {
		w.adapt(p, p.next)
		p.next = nil
	}
	w.begin(p)
	t := w.terms(p)
	restore := w.forgetInflight(p)
	restoreWindow := w.owedHere(p)
	var v Verdict
	switch {
	case w.mutant == mutAnyCost && !p.broken && p.s.Held() < n && p.s.creditLeft(t, w.now) > 0:
		p.s.pending += n
		v = Verdict{Action: Admit, Sync: SyncNow}
	default:
		v = p.s.Call(t, n, w.now)
	}
	restore()
	restoreWindow()
	if v.Action == Ask {
		w.waited++
		c := NewWaiter(n, p.plan)
		p.waiters.Add(c)
		p.calls = append(p.calls, &waitingCall{c, w.now})
	}
	switch {
	case v.Action == Admit:
		w.admit(p, n)
	case v.Source == hybridlimit.SourceDenyCache:
		w.checkDenial(p, n)
	}
	w.logf("p%d asks for %d: %s %v; held %d, owed %d+%d", p.id, n, v.Action, v.Source, p.s.Held(), p.s.pending, p.s.inflight)
	p.wants = max(p.wants, v.Sync)
	w.end(p)
	return v
}

// checkDenial checks a denial that a view proved: had Redis been asked this
// instant, after what the process owes, it would have denied too. Redis counts
// whole µs, so it may have the refill of one more. A view from before a loss, or
// from before Redis's clock jumped ahead, proves nothing.
func (w *world) checkDenial(p *proc, n int64) {
	if w.other.Rate > 0 {
		return // Redis counts by another limit, perhaps
	}
	restore := w.owedHere(p)
	proved := p.s.ProvedUntil(&w.t, n)
	if restore(); w.now >= proved {
		return // it is another process's turn
	}
	if p.s.view.sent <= w.losses.shaken {
		return
	}
	if level, b := w.balance(p), w.t.Bucket; level-b.Refill >= n*b.Unit {
		w.fail("p%d is denied %d units that Redis has", p.id, n)
	}
}

// exact is a call that asks Redis for itself, outside all batches: memory is
// full of other keys that owe. It needs a process that has forgotten this key,
// and it will have to forget another before it can know this one again.
func (w *world) exact(p *proc, n int64) {
	w.begin(p)
	if p.s.view.known || p.frozen != nil || p.waiters.Len() > 0 || !p.s.Idle() {
		w.end(p)
		return
	}
	p.s, p.evicted = Account{}, w.now
	w.redis.under(p.plan)
	if n > p.plan.Burst {
		return
	}
	if w.redis.exact(n, w.now) {
		w.admit(p, n)
		w.logf("Redis admits %d to a call of p%d's own", n, p.id)
	}
}

// leave takes the oldest call that still waits away: its context has ended, or
// it has waited for MaxWait and is decided without Redis.
func (w *world) leave(p *proc, timedOut bool) bool {
	for _, c := range p.calls {
		if c.gone || !c.Leave() {
			continue
		}
		w.begin(p)
		if timedOut {
			if v := p.s.TimedOut(w.terms(p), c.N, w.now); v.Action == Admit {
				w.admit(p, c.N)
			}
		}
		w.logf("p%d: a call for %d leaves", p.id, c.N)
		w.end(p)
		return true
	}
	return false
}

// evict forgets the key, if that may be.
func (w *world) evict(p *proc) bool {
	w.begin(p)
	if p.waiters.Len() > 0 || !p.s.Idle() && w.mutant != mutEvictOwing || p.frozen != nil {
		w.end(p)
		return false
	}
	w.expired += p.s.Held()
	w.forgiven += p.s.owed() // none, but for a mutant
	p.s, p.evicted, p.wants, p.gaveUp = Account{}, w.now, SyncNot, 0
	w.logf("p%d forgets the key", p.id)
	return true
}

// drop is Redis refusing the frozen batch for good. An earlier attempt may have
// been applied, or still be on its way.
func (w *world) drop(p *proc) {
	if p.frozen == nil {
		return
	}
	w.begin(p)
	w.giveUp(p, w.giveUpStep(p))
	p.frozen = nil
	w.logf("p%d gives its batch up", p.id)
	w.end(p)
}

// giveUp notes units of p that Redis may never hear of. So much more may be
// admitted, once; but of what a process gives up between one view and the next no
// more than its credit.
func (w *world) giveUp(p *proc, units int64) {
	w.dropped += units
	if w.members != nil { // C changes, and crashes alone give up: of each C at most
		w.untold += units
		return
	}
	before := min(p.gaveUp, w.t.Credit)
	p.gaveUp += units
	w.untold += min(p.gaveUp, w.t.Credit) - before
}

// crash restarts a process under another name.
func (w *world) crash(i int) {
	p := w.procs[i]
	w.begin(p)
	w.giveUp(p, p.s.owed()+p.s.local.admitted)
	w.expired += p.s.Held()
	w.logf("p%d crashes owing %d", p.id, p.s.owed())
	w.haunt(p)
	w.start(i)
}

func (k BudgetKind) String() string { return [...]string{"none", "lease", "credit", "deny"}[k] }

func (a Action) String() string { return [...]string{"admitted", "denied", "waits"}[a] }
