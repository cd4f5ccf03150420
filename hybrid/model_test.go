package hybrid

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
	t      terms // of every process; n is how many there are
	greedy bool  // every op asks for all there is as a lease: safety must not rest on modest sizes
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
	s       state
	born    int64
	evicted int64 // ns; negative: never
	word    word
	left    int64 // in the word
	loaded  int64
	until   int64 // it is good
	waiters []*waitingCall
	carried int
	seq     int64
	frozen  *frozenOp
	wants   when
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
	n    int64
	at   int64
	gone bool
}

type frozenOp struct {
	op    algo.Op
	batch modelBatch
	sent  int64
}

// message is a request, or a reply where there is one.
type message struct {
	batch modelBatch
	op    algo.Op
	reply *modelReply
}

func newWorld(t terms, procs int) *world {
	w := &world{t: t}
	w.redis = modelRedis{limit: algo.LimitOf(t.limit), bucket: t.bucket, env: map[int]modelEnvelope{}}
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
	*w.procs[i] = proc{id: w.ids, born: w.now, evicted: -1, credit: w.t.credit}
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
func (w *world) terms(p *proc) *terms {
	t := w.t
	t.credit, t.lost = p.credit, p.lost
	w.memberTerms(p, &t)
	full := int64(t.limit.TimeToFull())
	if w.mutant == mutBlindSoon {
		full /= 2
	}
	if w.mutant == mutUncapped && t.credit > 0 {
		t.credit = t.limit.BurstSize()
	}
	t.blind = w.mutant == mutBlind || t.blind && mayBeFull(full, p.born, p.evicted, w.now)
	return &t
}

// begin takes back the word and expires leases, as entry.begin.
func (w *world) begin(p *proc) {
	p.s.drain(p.left, w.now)
	p.word, p.left = word{}, 0
	w.expired += p.s.expire(w.now)
}

// end loads the word, as entry.end.
func (w *world) end(p *proc) {
	t := w.terms(p)
	held := p.s.held()
	restore := w.forgetInflight(p)
	restoreView := w.stretchWord(p)
	if p.broken {
		p.word, p.until = p.s.loadFallback()
	} else {
		p.word, p.until = p.s.load(t, w.now)
	}
	restoreView()
	credit := p.s.creditLeft(t, w.now)
	restore()
	p.loaded, p.left = w.now, p.word.units
	w.noteCredit(p, t.credit)
	switch {
	case p.word.units < 0, p.s.pending < 0, p.s.inflight < 0, p.s.leases[0].units < 0, p.s.leases[1].units < 0:
		w.fail("negative: %+v", p.s)
	case p.word.kind == wordLease && p.word.units > held:
		w.fail("the word has %d units of %d held", p.word.units, held)
	case p.word.kind == wordCredit && p.word.units > credit:
		w.fail("the word has %d units of %d on credit", p.word.units, credit)
	case p.word.kind == wordDeny && p.word.units != 0:
		w.fail("a word of denials starts at %d", p.word.units)
	}
}

// void has p's common path look again, as clock.void.
func (w *world) void(p *proc) { p.loaded, p.until = w.now-2*w.t.tick, w.now-2*w.t.tick }

// spend is the common path: it takes n units of the word, if the word is still
// good. An epoch lasts one tick, and the next may be a tick late.
func (w *world) spend(p *proc, n int64) bool {
	until := max(p.loaded, p.until)
	if w.members != nil && p.word.kind == wordCredit {
		until = max(p.loaded, min(until, p.fleet.ends()))
	}
	if late := w.now-until >= 2*w.t.tick; late && w.mutant != mutLateWord || p.word.kind == wordNone {
		return false
	}
	if p.word.kind == wordDeny {
		if w.now-until < w.t.tick {
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
	w.logf("p%d spends %d of its word (%s)", p.id, n, p.word.kind)
	return true
}

func (w *world) admit(p *proc, n int64) {
	p.admitted += n
	w.spending.admit(w.now, n)
	w.receipt.admit(w.now, n)
}

// call is one decision on the slow path, and whether it waits.
func (w *world) call(p *proc, n int64) verdict {
	w.begin(p)
	t := w.terms(p)
	restore := w.forgetInflight(p)
	restoreWindow := w.owedHere(p)
	var v verdict
	switch {
	case p.broken:
		v = p.s.fallback(t, n, w.now)
	case w.mutant == mutAnyCost && p.s.held() < n && p.s.creditLeft(t, w.now) > 0:
		p.s.pending += n
		v = verdict{action: admit, sync: syncNow}
	default:
		v = p.s.decide(t, n, w.now)
	}
	restore()
	restoreWindow()
	if v.action == ask {
		if p.s.tooLate(t, w.now) {
			v = p.s.without(t, n, w.now, false)
			v.sync = syncNow
		} else {
			w.waited++
			p.waiters = append(p.waiters, &waitingCall{n: n, at: w.now})
		}
	}
	switch {
	case v.action == admit:
		w.admit(p, n)
	case v.source == hybridlimit.SourceDenyCache:
		w.checkDenial(p, n)
	}
	w.logf("p%d asks for %d: %s %v; held %d, owed %d+%d", p.id, n, v.action, v.source, p.s.held(), p.s.pending, p.s.inflight)
	p.wants = max(p.wants, v.sync)
	w.end(p)
	return v
}

// checkDenial checks a denial that a view proved: had Redis been asked this
// instant, after what the process owes, it would have denied too. Redis counts
// whole µs, so it may have the refill of one more. A view from before a loss, or
// from before Redis's clock jumped ahead, proves nothing.
func (w *world) checkDenial(p *proc, n int64) {
	restore := w.owedHere(p)
	proved := p.s.provedUntil(&w.t, n)
	if restore(); w.now >= proved {
		return // it is another process's turn
	}
	if p.s.view.sent <= w.losses.shaken {
		return
	}
	if level, b := w.balance(p), w.t.bucket; level-b.Refill >= n*b.Unit {
		w.fail("p%d is denied %d units that Redis has", p.id, n)
	}
}

// exact is a call that asks Redis for itself, outside all batches: memory is
// full of other keys that owe. It needs a process that has forgotten this key,
// and it will have to forget another before it can know this one again.
func (w *world) exact(p *proc, n int64) {
	w.begin(p)
	if p.s.view.known || p.frozen != nil || len(p.waiters) > 0 || !p.s.idle() {
		w.end(p)
		return
	}
	p.s, p.evicted = state{}, w.now
	if w.redis.exact(n, w.now) {
		w.admit(p, n)
		w.logf("Redis admits %d to a call of p%d's own", n, p.id)
	}
}

// leave takes the oldest call that still waits away: its context has ended, or
// it has waited for MaxWait and is decided without Redis.
func (w *world) leave(p *proc, timedOut bool) bool {
	for _, c := range p.waiters {
		if c.gone {
			continue
		}
		c.gone = true
		w.begin(p)
		if timedOut {
			if v := p.s.without(w.terms(p), c.n, w.now, false); v.action == admit {
				w.admit(p, c.n)
			}
		}
		w.logf("p%d: a call for %d leaves", p.id, c.n)
		w.end(p)
		return true
	}
	return false
}

// evict forgets the key, if that may be.
func (w *world) evict(p *proc) bool {
	w.begin(p)
	if len(p.waiters) > 0 || !p.s.idle() && w.mutant != mutEvictOwing || p.frozen != nil {
		w.end(p)
		return false
	}
	w.expired += p.s.held()
	w.forgiven += p.s.owed() // none, but for a mutant
	p.s, p.evicted, p.wants, p.gaveUp = state{}, w.now, syncNot, 0
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
	w.giveUp(p, w.dropStep(p))
	p.frozen, p.carried = nil, 0
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
	before := min(p.gaveUp, w.t.credit)
	p.gaveUp += units
	w.untold += min(p.gaveUp, w.t.credit) - before
}

// crash restarts a process under another name.
func (w *world) crash(i int) {
	p := w.procs[i]
	w.begin(p)
	w.giveUp(p, p.s.owed()+p.s.share.admitted)
	w.expired += p.s.held()
	w.logf("p%d crashes owing %d", p.id, p.s.owed())
	w.haunt(p)
	w.start(i)
}

func (k wordKind) String() string { return [...]string{"none", "lease", "credit", "deny"}[k] }

func (a action) String() string { return [...]string{"admitted", "denied", "waits"}[a] }
