package hybrid

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is what the step in step.go works on, and what it asks of it.

// state is what a process knows and holds of one key.
type state struct {
	leases   [2]lease // units in hand; the second is the spare
	booked   booking  // what Redis's ledger holds for this process
	pending  int64    // units admitted on credit and not sent
	window   int64    // in which they were admitted; 0: it is not known, or of several
	inflight int64    // units sent and not answered; owed is the sum of both
	sentIn   int64    // their window, as window
	untold   int64    // units of syncs that were given up since the view came
	frozen   bool     // a sync is on its way
	asked    bool     // it carries asks: until its answer no credit is spent
	stuckAt  int64    // since when Redis has owed an answer; 0: it does not
	view     view
	demand   demand
	refusal  refusal // of exact calls
	refunds  refunds // units to be given back with the next syncs
	giving   int64   // units that the sync on its way gives back
	asking   int64   // units that exact calls of this key are asking for
	aside    int64   // units that such calls got since the sync on its way was frozen
	share    share
	word     word
	used     bool // it has been used under another limit, and the view that knew of it is void
	resync   bool // the next sync goes out even if nothing is owed: Redis may have lost the state
}

// view is what Redis last said.
type view struct {
	level    int64 // sub-units
	cap      int64 // sub-units to which it refills while the ledger stands
	turn     int64 // when to ask again
	refill   int64 // of a window: sub-units that come back each µs, to its end
	ends     int64 // of a window: ns at which it may be over, and the view with it; 0: never
	window   int64 // its number
	sent     int64 // when the question left: Redis answered later
	received int64 // when the answer came: Redis answered earlier
	redisAt  int64 // µs of Redis time, opaque here
	born     int64 // of the state in Redis; 0: there was none to speak of
	relook   int64 // until when it may prove a denial, or put off a turn
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

	wordKinds
)

var wordSources = [wordKinds]hybridlimit.Source{
	wordLease: hybridlimit.SourceLease, wordCredit: hybridlimit.SourceCredit, wordDeny: hybridlimit.SourceDenyCache,
}

// terms is everything that the step needs to know besides the state.
type terms struct {
	bucket   algo.Bucket // of a window, its units only: see window
	window   algo.Window // Period 0: it is a bucket
	limit    hybridlimit.Limit
	mode     Mode
	n        int64 // N
	credit   int64 // C
	every    int64 // K, at least
	adaptive bool  // K grows with the key's demand
	interval int64 // T, ns
	blind    bool  // a key without a view may be taken for full
	rtt      int64 // ns
	tick     int64 // ns between epochs
	maxWait  int64 // ns; negative: never wait
	share    shareTerms
	relookIn int64 // ns, jittered
	closing  bool  // no more decisions: a lease would be for nobody
	behind   bool  // syncs that can wait do so for longer than T
	lost     int64 // ns; when it was last seen that Redis had lost writes; 0: never
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
	delay  int64 // ns, for admit to a queue
	sync   when
	left   int64 // the fleet's units afterwards, estimated; the shell's
	ends   int64 // as view.ends; the shell's
}

// maxLookAgain bounds how long a view proves a denial: limits get raised and
// keys reset without a process hearing of it.
const maxLookAgain = 5e9 // ns

// drain books what the common path did with the word: left is its units now.
// It returns how many units it decided.
func (s *state) drain(left, now int64) (kind wordKind, units int64) {
	w := s.word
	s.word = word{}
	units = w.units - left
	switch w.kind {
	case wordNone:
		return wordNone, 0
	case wordLease:
		s.spend(units)
	case wordCredit:
		s.owe(units)
	case wordDeny:
		units = left
	}
	s.demand.spread(units, now)
	return w.kind, units
}

// exactly books what an exact call for n units beside the entry came to. The
// view was from before it, and so may be that of a sync on its way.
func (s *state) exactly(t *terms, n, granted int64) {
	s.asking -= n
	s.view.level -= granted * t.bucket.Unit
	if s.frozen {
		s.aside += granted
	}
}

// owed is what Redis has not acknowledged.
func (s *state) owed() int64 { return s.pending + s.inflight }

// ledgerMemory is how long what Redis's ledger held for anybody at the time of
// an answer keeps the bucket from filling up: two generations.
const ledgerMemory = 2 * algo.MaxLease * 1000 // ns

// level is the view brought to now from a moment at or after Redis's answer,
// so never more than Redis has if nobody else came.
func (s *state) level(t *terms, now int64) int64 {
	if t.windowed() {
		return s.view.level + (now-s.view.received)/1000*s.view.refill
	}
	b := t.bucket
	if now-s.view.received < ledgerMemory {
		b.Cap = s.view.cap
	}
	return b.Fill(s.view.level, (now-s.view.received)/1000)
}

// turn is until when this process should not ask, because units are scarce and
// it had some; 0: it may. For a process that is alone its view is all there is:
// with credit it needs no turns, nor for a queue, whose last places nobody else
// wants; without it asks once in T at most.
func (s *state) turn(t *terms) int64 {
	turn := min(s.view.turn, s.view.relook)
	switch {
	case t.n > 1:
		return turn
	case t.credit > 0 || t.bucket.Queue:
		return 0
	}
	return min(turn, s.view.received+t.interval)
}

// creditLeft is how many units may be spent on credit now: rule 1.
func (s *state) creditLeft(t *terms, now int64) int64 {
	if t.credit <= 0 || s.asked || s.share.admitted > 0 {
		return 0
	}
	var level int64
	switch {
	case s.fresh(now):
		level = s.level(t, now)
	case t.blind && !s.view.known && !s.used:
		level = t.bucket.Cap
	default:
		return 0
	}
	// What exact calls of this process take, the view does not know of.
	return max(0, min(t.bucket.Units(level)-s.asking, t.credit)-s.owed()-s.untold)
}

// mayBeFull reports whether a key without a view may be taken for full: all that
// this process once did with it, and has forgotten, is over by now. It may have
// left the key in debt, down to -Burst, from which a bucket needs twice its time
// to full. born is when the limiter was made or its limit replaced, evicted when
// it last forgot a key; negative: never.
func mayBeFull(full, born, evicted, now int64) bool {
	return now-born >= 2*full && (evicted < 0 || now-evicted >= 2*full)
}

// provedUntil is until when n units cannot be had, as far as the view proves:
// since Redis answered, the balance has grown by refill at most, counted here
// from when the question left, and what is owed comes off first, down to
// Redis's floor, and what is given back is there. Zero: no proof.
func (s *state) provedUntil(t *terms, n int64) int64 {
	if !s.view.known {
		return 0
	}
	if t.windowed() {
		return s.closedUntil(t, n)
	}
	return s.proved(t.bucket, s.view.level, n)
}

// proved is provedUntil of a level of a bucket that may not be the key's any
// more.
func (s *state) proved(b algo.Bucket, level, n int64) int64 {
	after := float64(level) - float64(s.owed()-s.back())*float64(b.Unit)
	return s.view.sent + b.Wait(int64(max(-float64(b.Cap), min(after, float64(b.Cap)))), n)*1000
}

// back is what is given back and not acknowledged.
func (s *state) back() int64 { return s.refunds.units() + s.giving }

// deniedUntil is until when a call for one unit is denied without asking.
func (s *state) deniedUntil(t *terms) int64 {
	return max(s.turn(t), min(s.provedUntil(t, 1), s.view.relook))
}

// flushAt is how many units pending make a sync urgent: K, or half of the
// credit, so that the answer is back before the rest is spent. An adaptive K
// is what the key uses in T, so that a busy key syncs once per T and not more.
func (s *state) flushAt(t *terms, now int64) int64 {
	k := t.every
	if t.adaptive {
		k = max(k, int64(s.demand.perSecond(now)*float64(t.interval)/1e9))
	}
	return max(1, min(k, t.credit/2))
}
