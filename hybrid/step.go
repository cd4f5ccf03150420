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

// decide answers a call for n units.
func (s *state) decide(t *terms, n, now int64) verdict {
	s.demand.note(n, now)
	return s.judge(t, n, now)
}

// judge is decide for a call that was counted before.
func (s *state) judge(t *terms, n, now int64) verdict {
	if s.atOnce(n) >= n {
		return s.fromLease(t, n, now)
	}
	if until := s.provedUntil(t, n); now < min(until, s.view.relook) {
		return verdict{action: deny, source: hybridlimit.SourceDenyCache, retry: until - now}
	}
	if turn := s.turn(t); now < turn {
		return verdict{action: deny, source: hybridlimit.SourceDenyCache, retry: turn - now}
	}
	if s.creditLeft(t, now) >= n {
		return s.onCredit(t, n, now)
	}
	if s.stuckAt == 0 {
		s.stuckAt = now
	}
	return verdict{action: ask, sync: syncNow}
}

// fromLease takes n units that are in hand.
func (s *state) fromLease(t *terms, n, now int64) verdict {
	v := s.hand(n, now)
	if s.worthLease(t, now) {
		v.sync = syncNow
	}
	return v
}

// onCredit owes n units more.
func (s *state) onCredit(t *terms, n, now int64) verdict {
	s.owe(n)
	v := verdict{action: admit, source: hybridlimit.SourceCredit, sync: syncLazily}
	if s.pending >= s.flushAt(t, now) {
		v.sync = syncNow
	}
	return v
}

// tooLate says that Redis has kept this key waiting for longer than a caller
// may wait: another one need not.
func (s *state) tooLate(t *terms, now int64) bool {
	return t.maxWait < 0 || s.stuckAt != 0 && now-s.stuckAt > t.maxWait
}

// without answers a call that Redis did not answer in time. While the breaker
// is closed, ModeStrict has a Redis to be strict about, and denies.
func (s *state) without(t *terms, n, now int64, broken bool) verdict {
	if t.mode == ModeStrict && !broken {
		return verdict{action: deny, source: hybridlimit.SourceTimeout, retry: max(t.rtt, t.tick)}
	}
	return s.fallback(t, n, now)
}

// fallback answers a call locally.
func (s *state) fallback(t *terms, n, now int64) verdict {
	if s.atOnce(n) >= n {
		return s.hand(n, now)
	}
	delay := s.queued(t, now)
	if s.share.take(t.share, n, now, s.warm(t, now)) {
		return verdict{action: admit, source: hybridlimit.SourceFallback, sync: syncLazily, delay: delay}
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
	if !s.fresh(now) {
		return t.share.cap
	}
	left := float64(s.level(t, now))/float64(t.bucket.Unit) - float64(s.owed()+s.untold)
	return max(0, min(t.share.cap, left*t.share.cap/float64(t.limit.BurstSize())))
}

// startShare is share.start from the warm level.
func (s *state) startShare(t *terms, now int64) { s.share.start(s.warm(t, now), now) }

// freeze turns the state into an op, or says that there is nothing to say.
// asks are the costs of the calls that wait.
func (s *state) freeze(t *terms, asks []int64, now int64) (algo.Op, bool) {
	if owed := s.share.settle(t.share, now); owed > 0 {
		s.pending, s.window = s.pending+owed, 0
	}
	again := s.resync && s.tells(t.bucket, t.lost)
	s.resync = false
	if s.pending == 0 && s.refunds.units() == 0 && len(asks) == 0 && !again && !s.worthLease(t, now) {
		s.stuckAt = 0 // those who waited have left
		return algo.Op{}, false
	}
	op := algo.Op{Owed: s.pending, Win: s.window, Asks: asks, Gen: s.booked.gen, Had: s.booked.had}
	s.booked.kept = 0
	if s.booked.gen != 0 && t.hasLeases() {
		s.booked.kept, _ = s.renewable()
		op.Keep = s.booked.kept
	}
	// Telling a view takes no lease: Redis may not know yet what others used.
	back := s.refunds.take()
	op.Refund, op.RefundAt = back.units, back.at
	s.giving, s.aside = back.units, 0
	onlyTells := again && s.pending == 0 && len(asks) == 0
	if !t.closing && !onlyTells { // else a turn, too, would be for nobody
		op.Div = 2 * t.n
	}
	if s.takesLease(t, now) && !onlyTells {
		op.Demand = int64(min(s.demand.steady(now)*1000, maxCharge))
	}
	if s.view.known {
		op.View = algo.View{Level: s.view.level, Prev: s.view.refill * t.window.Tick, At: s.view.redisAt, Born: s.view.born}
		op.Lost = t.lost > 0 && s.view.received <= t.lost
	}
	s.inflight, s.sentIn, s.pending, s.window = s.pending, s.window, 0, 0
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
	each     int64 // of a queue: ns that a unit takes, by the limit that the op had
	at       int64 // of a queue: ns; when Redis answered
}

// learn takes over what an answer says of the key.
func (s *state) learn(t *terms, a answer, now int64) {
	s.inflight, s.sentIn, s.untold, s.giving, s.frozen, s.asked, s.stuckAt = 0, 0, 0, 0, false, false, 0
	if s.share.admitted == 0 {
		s.share = share{} // the next stretch starts warm
	}
	s.view = view{
		level: a.Level, cap: a.Cap, turn: now + a.Retry*1000, sent: a.sent, received: now, redisAt: a.redisNow,
		born: a.Born, relook: now + t.relookIn, known: true,
	}
	s.used = false
	s.view.level -= s.aside * t.bucket.Unit
	s.aside = 0
	s.enter(t, a)
}

// settle books an answer. waiting are the costs of the calls that still wait,
// in order, those that the op carried first; it returns which of them are
// served from the grant, and how many units were lost.
func (s *state) settle(t *terms, a answer, waiting []int64, now int64) (served []bool, lost int64) {
	s.learn(t, a, now)
	// Counted from the sending, because Redis may have granted it then; less
	// two ticks, because the coarse epoch may lag by one and a tick be late.
	end := a.sent + a.Life*1000 - 2*t.tick
	s.renew(a.Gen, a.Lease, end)
	// Granted units are for the callers that Redis was asked for, who are
	// admitted as of then. While the answer's life lasts the bucket cannot
	// have filled up, and they may go to others; the ledger does not hold
	// them, so with it that is not known, as it is not once the life is over.
	grants, pool := a.Granted, a.Lease
	switch alive := now < end; {
	case !alive:
		lost, pool = pool, 0
	case a.Gen == 0:
		grants, pool = 0, pool+grants
	}
	// Rule 3: a lease first pays the credit spent while it was on its way. The
	// process held a view from before the lease; keeping both would admit C
	// more.
	net := min(pool, s.pending)
	pool -= net
	s.pending -= net
	served = make([]bool, len(waiting))
	for i, n := range waiting {
		switch {
		case i < a.carried && n <= grants:
			grants -= n
			served[i] = true
		case n <= pool:
			pool -= n
			served[i] = true
		case i < a.carried:
			s.stayAway(t)
		}
	}
	lost += grants
	// Callers that went away left theirs, perhaps to the fallback.
	net = min(pool, s.share.admitted)
	pool -= net
	s.share.admitted -= net
	if pool > 0 {
		lost += s.keep(lease{units: pool, end: end, booked: a.Gen != 0})
	}
	return served, lost
}

// drop gives up the frozen op and returns the units that Redis never hears of.
// Redis may have run it all the same, so what is leased is not to be settled
// again: the ledger would take another's units for these (rule 21). What is in
// hand is no longer booked, and ends when it did: it was in the ledger until
// then. And the units stay off what this process gives credit on (rule 22).
func (s *state) drop() int64 {
	units := s.inflight - s.giving
	s.untold += s.inflight
	s.giving = 0
	s.booked = booking{}
	for i := range s.leases {
		s.leases[i].booked = false
	}
	s.inflight, s.frozen, s.asked, s.stuckAt = 0, false, false, 0
	return units
}

// load chooses what the common path may spend, and until when. It may be spent
// for two ticks after that, or after now: an epoch lasts one, and the next may
// be late by one. The last ticks of a denial are for the slow path, whose
// RetryAfter is exact. Whatever else changes what may be spent either comes by an
// event of the key, which takes the word back, or voids the words of all.
func (s *state) load(t *terms, now int64) (w word, until int64) {
	until = now + wordTicks*t.tick
	if t.window.Sliding {
		until = now + t.interval // what comes back is not in the estimate that goes with the word
	}
	s.demand.decay(now) // what is asked of the word is spread over the time from here
	switch held := s.held(); {
	case s.slotted():
	case held > 0:
		until = min(until, s.looksAgain(now))
		units := held
		if !s.frozen && s.leases[1].units == 0 {
			// Run dry early, so that the slow path prefetches; or takes the last
			// unit, at least.
			if low := max(1, s.prefetchAt(t, now)); low < held {
				units = held - low
			} else if low == 1 && t.hasLeases() {
				units = 0
			}
		}
		s.word = word{wordLease, min(units, maxWordUnits)}
	case now+t.tick < s.deniedUntil(t):
		s.word, until = word{kind: wordDeny}, min(until, max(now, s.deniedUntil(t)-3*t.tick))
	case s.pending > 0 && s.outlasts(now, 2*t.tick):
		// A unit is pending, so a sync is queued: what is spent from here on
		// goes with it. Run dry where that sync becomes urgent.
		units := s.creditLeft(t, now)
		if more := s.flushAt(t, now) - s.pending; more > 0 {
			units = min(units, more)
		}
		s.word = word{wordCredit, min(units, maxWordUnits)}
		if s.view.ends != 0 {
			until = min(until, s.view.ends-2*t.tick)
		}
	}
	if s.word.kind != wordDeny && s.word.units <= 0 {
		s.word = word{}
	}
	return s.word, until
}

// loadFallback is load while Redis does not answer: leases only.
func (s *state) loadFallback() (w word, until int64) {
	if held := s.held(); held > 0 && !s.slotted() {
		s.word = word{wordLease, min(held, maxWordUnits)}
	}
	return s.word, s.firstEnd()
}

// idle says that forgetting the state loses nothing but unspent leases.
func (s *state) idle() bool {
	return s.owed() == 0 && s.refunds.units() == 0 && s.asking == 0 && !s.frozen && s.share.admitted == 0
}
