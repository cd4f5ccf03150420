package hybrid

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is the logic of one key: pure functions of (state, event, now).
// Clocks, locks, goroutines and Redis are the shell around it, in entry.go.
// Times are ns on the hub's monotonic clock; units are units, levels sub-units.
//
// The events are decide (a call), freeze (a sync is about to be sent), settle
// (its answer), drop (it was given up), and fallback (a call while Redis does
// not answer). Before each, drain takes back what the common path left in the
// spendable word; after each, load says what to put there.

// state is what a process knows and holds of one key.
type state struct {
	leases   [2]lease // units in hand; the second is the spare
	pending  int64    // units admitted on credit and not sent
	inflight int64    // units sent and not answered; owed is the sum of both
	frozen   bool     // a sync is on its way
	asked    bool     // it carries asks: until its answer no credit is spent
	stuckAt  int64    // since when Redis has owed an answer; 0: it does not
	view     view
	demand   demand
	share    share
	word     word
}

// lease is units already debited in Redis.
type lease struct {
	units int64
	end   int64 // not to be spent from here on
}

// view is what Redis last said.
type view struct {
	level    int64 // sub-units
	sent     int64 // when the question left: Redis answered later
	received int64 // when the answer came: Redis answered earlier
	redisAt  int64 // µs of Redis time, opaque here
	born     int64 // of the state in Redis; 0: there was none to speak of
	relook   int64 // until when it may prove a denial
	known    bool
}

// word is what lies in the entry's spendable word.
type word struct {
	kind  wordKind
	units int64
}

type wordKind uint8

const (
	wordNone wordKind = iota
	wordLease
	wordCredit
	wordDeny // units counts denied units up from 0
)

// terms is everything that the step needs to know besides the state.
type terms struct {
	bucket   algo.Bucket
	limit    hybridlimit.Limit
	mode     Mode
	n        int64 // N
	credit   int64 // C
	every    int64 // K
	blind    bool  // a key without a view may be taken for full
	rtt      int64 // ns
	tick     int64 // ns between epochs
	maxWait  int64 // ns; negative: never wait
	share    shareTerms
	relookIn int64 // ns, jittered
	closing  bool  // no more decisions: a lease would be for nobody
}

// when says how soon a verdict wants a sync.
type when uint8

const (
	syncNot when = iota
	syncLazily
	syncNow
)

type action uint8

const (
	admit action = iota
	deny
	ask // wait for Redis
)

// verdict is the answer to a call.
type verdict struct {
	action action
	source hybridlimit.Source
	retry  int64 // ns, for deny
	sync   when
}

// maxLookAgain bounds how long a view proves a denial: limits get raised and
// keys reset without a process hearing of it.
const maxLookAgain = 5e9 // ns

// drain books what the common path did with the word: left is its units now.
func (s *state) drain(left, now int64) {
	w := s.word
	s.word = word{}
	switch w.kind {
	case wordLease:
		s.spend(w.units - left)
		s.demand.note(w.units-left, now)
	case wordCredit:
		s.pending += w.units - left
		s.demand.note(w.units-left, now)
	case wordDeny:
		s.demand.note(left, now)
	}
}

// held is the units in hand. Call expire first.
func (s *state) held() int64 { return s.leases[0].units + s.leases[1].units }

// spend takes units from the leases, the older first.
func (s *state) spend(units int64) {
	first := min(units, s.leases[0].units)
	s.leases[0].units -= first
	s.leases[1].units -= units - first
	if s.leases[0].units == 0 {
		s.leases[0], s.leases[1] = s.leases[1], lease{}
	}
}

// expire gives up leases that have ended and returns how many units.
func (s *state) expire(now int64) int64 {
	var lost int64
	for i := range s.leases {
		if l := &s.leases[i]; now >= l.end {
			lost += l.units
			*l = lease{}
		}
	}
	if s.leases[0].units == 0 {
		s.leases[0], s.leases[1] = s.leases[1], lease{}
	}
	return lost
}

func (s *state) owed() int64 { return s.pending + s.inflight }

// level is the view brought to now from a moment at or after Redis's answer,
// so never more than Redis has if nobody else came.
func (s *state) level(t *terms, now int64) int64 {
	return t.bucket.Fill(s.view.level, (now-s.view.received)/1000)
}

// creditLeft is how many units may be spent on credit now: rule 1.
func (s *state) creditLeft(t *terms, now int64) int64 {
	if t.credit <= 0 || s.asked || s.share.admitted > 0 {
		return 0
	}
	var level int64
	switch {
	case s.view.known:
		level = s.level(t, now)
	case t.blind:
		level = t.bucket.Cap
	default:
		return 0
	}
	return max(0, min(t.bucket.Units(level), t.credit)-s.owed())
}

// mayBeFull says whether a key without a view may be taken for full: whatever
// this process once did with it, and has forgotten, is over by now. It may
// have left the key in debt, down to -Burst, from which a bucket needs twice
// its time to full. born is when the limiter was made, evicted when it last
// forgot a key; negative: never.
func mayBeFull(full, born, evicted, now int64) bool {
	return now-born >= 2*full && (evicted < 0 || now-evicted >= 2*full)
}

// provedUntil is until when n units cannot be had, as far as the view proves:
// since Redis answered, the balance has grown by refill at most, counted here
// from when the question left, and what is owed comes off first, down to
// Redis's floor. Zero: no proof.
func (s *state) provedUntil(t *terms, n int64) int64 {
	if !s.view.known {
		return 0
	}
	level := float64(s.view.level) - float64(s.owed())*float64(t.bucket.Unit)
	level = max(level, -float64(t.bucket.Cap))
	return s.view.sent + t.bucket.Wait(int64(level), n)*1000
}

// prefetchAt is how many units in hand are too few: what two round trips use.
func (s *state) prefetchAt(t *terms, now int64) int64 {
	return int64(s.demand.perSecond(now) * float64(2*t.rtt) / 1e9)
}

// takesLease says whether a sync that goes out anyway should ask for a lease:
// the mode has them, and few units are in hand.
func (s *state) takesLease(t *terms, now int64) bool {
	return (t.mode == ModeAuto || t.mode == ModeStrict) && !t.closing && s.leases[1].units == 0 && s.held() <= s.prefetchAt(t, now)
}

// leasable is the demand, in units a second, from which a lease of a second
// holds one unit at all (see bucket_apply in lua/bucket.lua): 4 - 1.5·√4 = 1.
const leasable = 4

// worthLease says whether a sync should go out for a lease alone: the demand
// supports one, and the last view leaves room for it to live and something to
// take a part of.
func (s *state) worthLease(t *terms, now int64) bool {
	if s.frozen || !s.takesLease(t, now) || s.demand.perSecond(now) < leasable {
		return false
	}
	if !s.view.known {
		return true
	}
	level := s.level(t, now)
	return t.bucket.Units(level) >= 2*t.n && (t.bucket.Cap-level)/t.bucket.Refill >= algo.MinLease
}

// flushAt is how many units pending make a sync urgent: K, or half of the
// credit, so that the answer is back before the rest is spent.
func (t *terms) flushAt() int64 { return max(1, min(t.every, t.credit/2)) }

// decide answers a call for n units.
func (s *state) decide(t *terms, n, now int64) verdict {
	s.demand.note(n, now)
	return s.judge(t, n, now)
}

// judge is decide for a call that was counted before.
func (s *state) judge(t *terms, n, now int64) verdict {
	if s.held() >= n {
		s.spend(n)
		v := verdict{action: admit, source: hybridlimit.SourceLease}
		if s.worthLease(t, now) {
			v.sync = syncNow
		}
		return v
	}
	if until := s.provedUntil(t, n); now < min(until, s.view.relook) {
		return verdict{action: deny, source: hybridlimit.SourceDenyCache, retry: until - now}
	}
	if s.creditLeft(t, now) >= n {
		s.pending += n
		v := verdict{action: admit, source: hybridlimit.SourceCredit, sync: syncLazily}
		if s.pending >= t.flushAt() {
			v.sync = syncNow
		}
		return v
	}
	if s.stuckAt == 0 {
		s.stuckAt = now
	}
	return verdict{action: ask, sync: syncNow}
}

// tooLate says that Redis has kept this key waiting for longer than a caller
// may wait: another one need not.
func (s *state) tooLate(t *terms, now int64) bool {
	return t.maxWait < 0 || s.stuckAt != 0 && now-s.stuckAt > t.maxWait
}

// giveUp answers a call that Redis did not answer in time, while the breaker
// is closed.
func (s *state) giveUp(t *terms, n, now int64) verdict {
	if t.mode == ModeStrict {
		return verdict{action: deny, source: hybridlimit.SourceTimeout, retry: max(t.rtt, t.tick)}
	}
	return s.fallback(t, n, now)
}

// fallback answers a call locally.
func (s *state) fallback(t *terms, n, now int64) verdict {
	if s.held() >= n {
		s.spend(n)
		return verdict{action: admit, source: hybridlimit.SourceLease}
	}
	if s.share.take(t.share, n, now, s.warm(t, now)) {
		return verdict{action: admit, source: hybridlimit.SourceFallback, sync: syncLazily}
	}
	retry := s.share.wait(t.share, n)
	if retry < 0 { // only Redis can admit it: it may be back any moment
		retry = t.tick
	}
	return verdict{action: deny, source: hybridlimit.SourceFallback, retry: retry}
}

// warm is the level that the share bucket starts from: this process's part of
// what Redis last said was left, not a full bucket.
func (s *state) warm(t *terms, now int64) float64 {
	if !s.view.known {
		return t.share.cap
	}
	left := float64(s.level(t, now))/float64(t.bucket.Unit) - float64(s.owed())
	return max(0, min(t.share.cap, left*t.share.cap/float64(t.limit.BurstSize())))
}

// freeze turns the state into an op, or says that there is nothing to say.
// asks are the costs of the calls that wait.
func (s *state) freeze(t *terms, asks []int64, now int64) (algo.Op, bool) {
	s.pending += s.share.settle(t.share, now)
	if s.pending == 0 && len(asks) == 0 && !s.worthLease(t, now) {
		s.stuckAt = 0 // those who waited have left
		return algo.Op{}, false
	}
	op := algo.Op{Owed: s.pending, Asks: asks}
	if s.takesLease(t, now) {
		op.Div = 2 * t.n
		op.Demand = int64(s.demand.perSecond(now) * 1000)
	}
	if s.view.known {
		op.View = algo.View{Level: s.view.level, At: s.view.redisAt, Born: s.view.born}
	}
	s.inflight, s.pending = s.pending, 0
	s.frozen, s.asked = true, len(asks) > 0
	if s.stuckAt == 0 {
		s.stuckAt = now
	}
	return op, true
}

// answer is what Redis said to an op, with the times that it needs.
type answer struct {
	algo.Answer
	redisNow int64 // µs of Redis time
	sent     int64 // ns; when the op was first sent
	carried  int   // how many of those who still wait the op asked for
}

// settle books an answer. waiting are the costs of the calls that still wait,
// in order, those that the op carried first; it returns which of them are
// served from the grant, and how many units were lost.
func (s *state) settle(t *terms, a answer, waiting []int64, now int64) (served []bool, lost int64) {
	s.inflight, s.frozen, s.asked, s.stuckAt = 0, false, false, 0
	s.share.started = s.share.admitted > 0 // else the next stretch starts warm
	s.view = view{
		level: a.Level, sent: a.sent, received: now, redisAt: a.redisNow, born: a.Born,
		relook: now + t.relookIn, known: true,
	}
	// Counted from the sending, because Redis may have granted it then; less
	// two ticks, because the coarse epoch may lag by one and a tick be late.
	end := a.sent + a.Life*1000 - 2*t.tick
	pool, alive := a.Granted+a.Lease, now < end
	if alive {
		// Rule 3: a grant first pays the credit spent while it was on its
		// way. The process held a view from before the grant; keeping both
		// would admit C more.
		net := min(pool, s.pending)
		pool -= net
		s.pending -= net
	} else {
		// The bucket may have filled up since: these units are void. What
		// was granted to callers is not, for the callers that Redis was
		// asked for: they are admitted as of then. Whoever came later is not.
		pool -= a.Lease
		lost += a.Lease
	}
	served = make([]bool, len(waiting))
	for i, n := range waiting {
		if n <= pool && (alive || i < a.carried) {
			pool -= n
			served[i] = true
		}
	}
	if alive && pool > 0 { // callers that went away left theirs
		net := min(pool, s.share.admitted) // perhaps to the fallback
		pool -= net
		s.share.admitted -= net
	}
	switch {
	case pool == 0:
	case !alive:
		lost += pool
	case s.leases[0].units == 0:
		s.leases[0] = lease{units: pool, end: end}
	case s.leases[1].units == 0:
		s.leases[1] = lease{units: pool, end: end}
	default:
		s.leases[1] = lease{units: pool + s.leases[1].units, end: min(end, s.leases[1].end)}
	}
	return served, lost
}

// drop gives up the frozen op and returns the units that Redis never hears of.
func (s *state) drop() int64 {
	units := s.inflight
	s.inflight, s.frozen, s.asked, s.stuckAt = 0, false, false, 0
	return units
}

// load chooses what the common path may spend until the next epoch.
func (s *state) load(t *terms, now int64) word {
	switch held := s.held(); {
	case held > 0:
		units := held
		if !s.frozen && s.leases[1].units == 0 {
			// Run dry early, so that the slow path prefetches.
			if low := s.prefetchAt(t, now); low < held {
				units = held - low
			}
		}
		s.word = word{wordLease, min(units, maxWordUnits)}
	case now+t.tick < min(s.provedUntil(t, 1), s.view.relook):
		s.word = word{kind: wordDeny}
	case s.pending > 0:
		// A unit is pending, so a sync is queued: what is spent from here on
		// goes with it. Run dry where that sync becomes urgent.
		units := s.creditLeft(t, now)
		if more := t.flushAt() - s.pending; more > 0 {
			units = min(units, more)
		}
		s.word = word{wordCredit, min(units, maxWordUnits)}
	}
	if s.word.kind != wordDeny && s.word.units <= 0 {
		s.word = word{}
	}
	return s.word
}

// loadFallback is load while Redis does not answer: leases only.
func (s *state) loadFallback() word {
	if held := s.held(); held > 0 {
		s.word = word{wordLease, min(held, maxWordUnits)}
	}
	return s.word
}

// idle says that forgetting the state loses nothing but unspent leases.
func (s *state) idle() bool {
	return s.owed() == 0 && !s.frozen && s.share.admitted == 0
}
