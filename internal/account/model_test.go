package account

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// world is a fleet that uses one key in virtual time. Its processes run the real account, its Redis runs the real arithmetic,
// and its network may delay, lose, duplicate and reorder messages. It replaces the entry and the sync engine of package hybrid.
// It does not model their locks and goroutines.
type world struct {
	plan   *Plan
	other  hybridlimit.Limit // second limit, see setLimit; Rate 0: none
	floors []float64         // of the classes of the processes, see model_class_test.go; nil: no classes
	t      Conditions        // of every process; N is the number of processes
	greedy bool              // every op asks for a lease of all units: safety must not depend on small leases
	bare   bool              // a batch that only asks has no envelope at first
	mutant mutant
	redis  modelRedis
	procs  []*proc
	net    []message
	now    int64 // ns
	ids    int

	forwards forwards // of a queue
	spending meter    // the admissions that the theorem counts: see admitWaiter
	receipt  meter    // the same, but a waiting call counts when it is told

	expired, lost, dropped, forgiven int64 // units
	uncertain                        int64 // units of asks that were sent without an envelope and not answered
	untold                           int64 // the part of dropped that may be admitted in addition: see giveUp
	late                             int64 // units that arrived more than a window late
	waited                           int64 // calls
	ahead                            aheadBook

	losses  lossBook
	members *memberBook // nil: N is constant

	trace *strings.Builder
	bad   string // the first broken invariant
}

// proc is one process: the parts of the entry and the sync engine besides the account.
type proc struct {
	id      int // new after each restart
	place   int // of procs
	s       Account
	born    int64
	evicted int64 // ns; negative: never
	word    Budget
	left    int64 // units left in the budget
	loaded  int64
	until   int64 // the budget is good until then
	plan    *Plan
	next    *Plan // set by SetLimit, used from the next call of the key; nil: none
	waiters Waiters
	calls   []*waitingCall // the calls of waiters, in order
	seq     int64
	bares   int64 // minus the number of batches without an envelope
	// sureUntil is the time (ns) until which a batch that tells a view needs no envelope.
	sureUntil int64
	frozen    *frozenOp
	wants     Sync
	asleep    int64 // the process is paused until then
	credit    int64 // C as this process believes, at most the C of the world
	broken    bool  // its breaker is open
	epoch     int64 // the epoch in the last answer
	lost      int64 // ns; time of the last notice of a loss
	own       int64 // for a mutant: units that the process used itself
	gaveUp    int64 // units that it gave up since its view came
	backEnds  int64 // ns; the end of the units that the batch in flight returns
	taken     int64 // units that Redis had taken back when it gave the view
	lead      int64 // ns; the most by which Redis's clock is ahead, as far as the process knows
	share     fallback.Share
	maxLife   int64 // Conditions.MaxLife, if it is not 0
	member

	admitted int64 // units
}

type waitingCall struct {
	*Waiter
	at int64 // ns; start of the wait
}

type frozenOp struct {
	op    algo.Op
	plan  *Plan
	batch modelBatch
	sent  int64
	span  algo.Span
}

// message is a request, or, if reply is set, a reply.
type message struct {
	batch modelBatch
	plan  *Plan // plan of op
	op    algo.Op
	span  algo.Span
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
	*w.procs[i] = proc{id: w.ids, place: i, born: w.now, evicted: -1, credit: w.t.Credit, plan: w.planOf(i, w.t.Limit), share: newShare()}
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

// terms returns the conditions that the limiter passes to the account.
func (w *world) terms(p *proc) *Conditions {
	t := w.t
	t.Credit, t.Lost, t.Broken = p.credit, p.lost, p.broken
	if w.other.Rate > 0 {
		t.Credit = min(t.Credit, p.plan.Burst/max(1, t.N-1))
	}
	if !p.away {
		t.Bucket, t.Window, t.Limit, t.Floor = p.plan.Bucket, p.windowAt(w.now), p.plan.Limit, p.plan.Floor
	}
	t.Fallback.Share = p.share
	if p.maxLife != 0 {
		t.MaxLife = p.maxLife
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

// begin takes back the budget and expires leases, as the entry does before each event.
func (w *world) begin(p *proc) {
	w.spoilBlocks(p)
	_, expired := p.s.Begin(p.left, w.now)
	p.word, p.left = Budget{}, 0
	w.expired += expired
}

// end loads the budget, as the entry does after each event.
func (w *world) end(p *proc) {
	t := w.terms(p)
	held := p.s.Held()
	restore := w.forgetInflight(p)
	restoreView := w.stretchWord(p)
	p.word, p.until = p.s.Load(t, w.now)
	restoreView()
	credit := p.s.CreditLeft(t, w.now)
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

// void makes the fast path of p look again, like the void method of the clock.
func (w *world) void(p *proc) { p.loaded, p.until = w.now-2*w.t.Tick, w.now-2*w.t.Tick }

// spend is the fast path: it takes n units of the budget if the budget is still good. The budget is good until the end of its
// last tick, and the next tick may start up to one tick late.
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
	if p.word.Kind == LeaseBudget {
		w.spendAhead(p, n)
	}
	w.admit(p, n)
	w.logf("p%d spends %d of its word (%s)", p.id, n, p.word.Kind)
	return true
}

func (w *world) admit(p *proc, n int64) {
	p.admitted += n
	w.spending.admit(w.now, n)
	w.receipt.admit(w.now, n)
}

// admitLater counts an admission that a queue serves after delay ns.
func (w *world) admitLater(p *proc, n, delay int64) {
	w.admit(p, n)
	w.forward(n, delay)
}

// adapt gives p another plan, as the entry does.
func (w *world) adapt(p *proc, plan *Plan) {
	if old := p.plan; plan != old {
		w.begin(p)
		p.plan = plan
		w.lost += p.s.Adapt(old, plan, w.now)
	}
}

// setLimit switches p between the two limits, like Limiter.SetLimit: a key of p uses the new limit from its next call. No other
// process learns of it.
func (w *world) setLimit(p *proc) {
	limit := w.other
	if (p.next == nil && p.plan.Limit == w.other) || (p.next != nil && p.next.Limit == w.other) {
		limit = w.t.Limit
	}
	p.next = w.planOf(p.place, limit)
	p.next.Began = max(1, w.now)
	// A lease that was sized under a slower limit may outlive the time in which a faster limit fills the bucket. This is
	// possible while processes have different limits. Such a lease is part of a burst, so each change may add up to a burst.
	// Queues are exempt: see noteShorter.
	if !w.t.Bucket.Queue {
		w.losses.gained += w.t.Bucket.Cap
	}
	w.void(p)
	w.logf("p%d gets %v", p.id, limit)
}

// burst is the highest cost of a call of p.
func (w *world) burst(p *proc) int64 {
	if p.next != nil {
		return p.next.Burst
	}
	return p.plan.Burst
}

// call makes one decision on the slow path. Its verdict tells whether the call waits.
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
	case w.mutant == mutAnyCost && !p.broken && p.s.Held() < n && p.s.CreditLeft(t, w.now) > 0:
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
		if v.Source == hybridlimit.SourceLease {
			w.spendAhead(p, n)
		}
		w.admitLater(p, n, v.Delay)
	case v.Source == hybridlimit.SourceDenyCache:
		w.checkDenial(p, n)
	}
	w.logf("p%d asks for %d: %s %v; held %d, owed %d+%d", p.id, n, v.Action, v.Source, p.s.Held(), p.s.pending, p.s.inflight)
	p.wants = max(p.wants, v.Sync)
	w.end(p)
	return v
}

// checkDenial checks a denial that a view proved: Redis would have denied the call too if it had been asked at this instant,
// after the units that the process owes. Redis counts whole µs, so it may have the refill of one µs more. A view proves nothing
// if it is from before a loss, or from before Redis's clock jumped forward.
func (w *world) checkDenial(p *proc, n int64) {
	if w.other.Rate > 0 {
		return // Redis may count by another limit
	}
	restore := w.owedHere(p)
	proved := p.s.ProvedUntil(w.terms(p), n)
	if restore(); w.now >= proved {
		return // the process waits for its next poll
	}
	if p.s.view.sent <= w.losses.shaken {
		return
	}
	// Units that a process returned since then were out when Redis answered.
	if level, b := w.balance(p)-(w.redis.taken-p.taken)*w.t.Bucket.Unit-p.plan.Low(), w.t.Bucket; level-b.Refill >= n*b.Unit {
		w.fail("p%d is denied %d units that Redis has", p.id, n)
	}
}

// exact is a direct call: it asks Redis outside all batches, because the memory is full of other keys that owe units. It needs
// a process that has forgotten this key. The process must forget another key before it can keep this one again.
func (w *world) exact(p *proc, n int64) {
	w.begin(p)
	if p.s.view.known() || p.frozen != nil || p.waiters.Len() > 0 || !p.s.Idle() {
		w.end(p)
		return
	}
	p.s, p.evicted = Account{}, w.now
	w.redis.under(p.plan, p.windowAt(w.now).Span())
	if n > p.plan.Burst {
		return
	}
	if granted, delay := w.redis.exact(n, p.plan.Floor, w.now); granted {
		w.admitLater(p, n, delay)
		w.logf("Redis admits %d to a call of p%d's own", n, p.id)
	}
}

// leave removes the oldest waiting call: its context has ended, or it has waited for MaxWait and is decided without Redis.
func (w *world) leave(p *proc, timedOut bool) bool {
	for _, c := range p.calls {
		if c.gone || !c.Leave() {
			continue
		}
		w.begin(p)
		if timedOut {
			if v := p.s.TimedOut(w.terms(p), c.N, w.now); v.Action == Admit {
				w.admitLater(p, c.N, v.Delay)
			}
		}
		w.logf("p%d: a call for %d leaves", p.id, c.N)
		w.end(p)
		return true
	}
	return false
}

// evict forgets the key if that is permitted.
func (w *world) evict(p *proc) bool {
	w.begin(p)
	if p.waiters.Len() > 0 || !p.s.Forgettable(p.broken) && w.mutant != mutEvictOwing || p.frozen != nil {
		p.s.Return()
		w.end(p)
		return false
	}
	w.expired += p.s.Leased()
	w.forgiven += p.s.owed() // 0, except with a mutant
	p.s, p.evicted, p.wants, p.gaveUp = Account{}, w.now, SyncNot, 0
	w.logf("p%d forgets the key", p.id)
	return true
}

// drop is the case in which Redis refuses the frozen batch for good. An earlier attempt may have been applied, or may still be
// in flight.
func (w *world) drop(p *proc) {
	if p.frozen == nil {
		return
	}
	w.begin(p)
	if p.frozen.batch.bare() {
		w.uncertain += p.frozen.op.Asked()
	}
	w.giveUp(p, w.giveUpStep(p))
	p.frozen = nil
	w.logf("p%d gives its batch up", p.id)
	w.end(p)
}

// giveUp records units of p that Redis may never hear of. As many units may be admitted in addition, once. The units that a
// process gives up between one view and the next count only up to its credit.
func (w *world) giveUp(p *proc, units int64) {
	w.dropped += units
	if w.members != nil { // C changes, and only crashes give units up: at most C of each
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
	if p.frozen != nil && p.frozen.batch.bare() {
		w.uncertain += p.frozen.op.Asked()
	}
	w.expired += p.s.Leased()
	w.logf("p%d crashes owing %d", p.id, p.s.owed())
	w.haunt(p)
	w.start(i)
}

func (k BudgetKind) String() string { return [...]string{"none", "lease", "credit", "deny"}[k] }

func (a Action) String() string { return [...]string{"admitted", "denied", "waits"}[a] }
