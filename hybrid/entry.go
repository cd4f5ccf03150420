package hybrid

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// The spendable word: [epoch 34][kind 2][units 28]. The epoch is the last in
// which it is good. Epochs come round; one is past if it lies less than half of
// them, 1.4 years of ticks, behind: see Hub.takeBack.
const (
	unitBits     = 64 - clock.EpochBits - kindBits
	kindBits     = 2
	epochShift   = unitBits + kindBits
	maxWordUnits = 1<<unitBits - 1
)

// The clock's terms, under the names that this package uses.
const (
	tick      = clock.Tick // between epochs
	wordTicks = clock.Span // epochs for which a word is good at most
)

func packWord(until uint64, w word) uint64 {
	if w.kind == wordNone {
		return 0
	}
	return until<<epochShift | uint64(w.kind)<<unitBits | uint64(w.units)
}

// past says whether the epoch until which a word was good is over.
func past(w, epoch uint64) bool { return int64(w-epoch<<epochShift) < 0 }

func wordUnits(w uint64) int64     { return int64(w & maxWordUnits) }
func wordKindOf(w uint64) wordKind { return wordKind(w >> unitBits & (1<<kindBits - 1)) }

// entry is one key in memory: the state of the step behind a lock, and the
// word that the common path spends from without it.
type entry struct {
	// What finding it and admitting take is in one line of the cache.
	name  string         // the caller's key
	short [shortKey]byte // where name lies if it fits
	word  atomic.Uint64
	rest  atomic.Uint64         // a float64: see left
	rules atomic.Pointer[rules] // changed under mu

	shut atomic.Int64 // of wordDeny, ns, even: before this, no unit can be had; odd: nor, if one can, is it this process's turn
	ends atomic.Int64 // ns: when the window ends; 0: it is a bucket, or not known

	lim  *Limiter
	node ratesync.Node

	mu      sync.Mutex // guards what follows; never held across I/O; by lock and unlock
	*whole             // while mu is held, and while it does not rest
	resting            // while it does
	dead    bool       // evicted: look the key up again
}

// shortKey is how long a key may be that lies in its entry, where comparing it
// costs no memory that is not at hand.
const shortKey = 24

// newEntry is one for a key, of which it keeps a copy: the caller's string may
// be a piece of a request, or of a buffer that is about to be used again.
func newEntry(l *Limiter, key string) *entry {
	e := &entry{lim: l}
	if len(key) > shortKey {
		e.name = strings.Clone(key)
		return e
	}
	e.name = unsafe.String(&e.short[0], copy(e.short[:], key)) // which is not written to again
	return e
}

// is says whether it is the key's.
func (e *entry) is(key string) bool {
	if len(key) > shortKey {
		return e.name == key
	}
	return len(e.name) == len(key) && string(e.short[:len(key)]) == key
}

// tag is the slot that the key is in.
func (e *entry) tag() int { return int(e.node.Tag) }

// Node is for the sync engine.
func (e *entry) Node() *ratesync.Node { return &e.node }

// waiter is a call that waits for Redis.
type waiter struct {
	n    int64
	by   *rules       // under which it asks
	v    verdict      // what out gets; guarded by entry.mu
	out  chan verdict // holds one
	done bool         // out has it; guarded by entry.mu
	gone bool         // the caller left; guarded by entry.mu
}

// maxAsks is how many waiting calls one op carries. The rest are served from
// the lease that comes with it, or by the next.
const maxAsks = 64

// begin takes back the word and expires leases. Every event starts here.
func (e *entry) begin(now int64) {
	kind, units := e.state.drain(wordUnits(e.word.Swap(0)), now)
	e.lim.count.drained(kind, units)
	if lost := e.state.expire(now); lost > 0 {
		e.lim.count.expired.Add(lost)
	}
}

// end loads the word, which is good from the epoch that was read before the
// event's now.
func (e *entry) end(t *terms, epoch uint64, broken bool, now int64) {
	var w word
	var until int64
	switch {
	case e.lim.wordless() || e.lim.outdated(e.rules.Load()): // asked after the epoch was read: see Limiter.stop, changeSwitch and SetLimit
	case e.lim.exactly(e.rules.Load()): // what the fallback left is settled like any other, and decides nothing
	case broken:
		w, until = e.state.loadFallback()
	default:
		w, until = e.state.load(t, now)
	}
	e.estimate(e.rules.Load(), e.remaining(t, now)-w.spendable())
	e.ends.Store(e.windowEnd(t, now))
	if w.kind == wordDeny {
		proved, turn := e.state.provedUntil(t, 1)&^1, e.state.turn(t)|1
		e.shut.Store(max(proved, turn))
	}
	e.word.Store(packWord(clock.GoodUntil(epoch, now, min(until, e.lim.store.turnover.notedBy(now))), w))
}

// estimate notes the estimate of the fleet's units beyond the word's; negative is
// debt. A word is good for long, and meanwhile units come back: so the line is
// kept on which they do, by its value at the time 0 of the clock that the common
// path reads. (Of windows none come back as far as this is concerned.)
func (e *entry) estimate(r *rules, units int64) {
	e.rest.Store(math.Float64bits(float64(units) - r.perNs*float64(e.lim.hub.clock.Rough())))
}

// units is that estimate by the time of the clock.
func (e *entry) units(r *rules, c *clock.Clock) float64 {
	return math.Float64frombits(e.rest.Load()) + r.perNs*float64(c.Rough())
}

// floatSlack is what an estimate in floats may be off by, in units.
const floatSlack = 1e-3

// left is the estimate in whole units.
func (e *entry) left(r *rules) int64 {
	return int64(math.Floor(e.units(r, e.lim.hub.clock) + floatSlack))
}

func (w word) spendable() int64 {
	if w.kind == wordDeny {
		return 0
	}
	return w.units
}

// remaining estimates the fleet's units: what Redis last said, what is in
// hand, less what it has not heard of. Negative is debt, down to a burst.
func (e *entry) remaining(t *terms, now int64) int64 {
	s, burst := &e.state, t.limit.BurstSize()
	left := burst
	if s.fresh(now) {
		level := s.level(t, now)
		if left = level / t.bucket.Unit; left*t.bucket.Unit > level { // rounded up
			left--
		}
		left += s.held()
	}
	left -= s.owed() - s.back() + s.share.admitted
	return max(-burst, min(left, burst))
}

// windowEnd is until when the window lasts: by Redis's clock, or else at least,
// by the view; 0: not known, or no window.
func (e *entry) windowEnd(t *terms, now int64) int64 {
	if end := e.lim.hub.clocks.windowEnd(e.tag(), t.window.Period, now); end > 0 {
		return end
	}
	return e.state.view.ends
}

// Freeze is for the sync engine. Its time is a little older than the epoch's,
// and a word must not be: it is not used.
func (e *entry) Freeze(time.Time) (wire.Op, bool) {
	if e.lim.mute() {
		e.quiet()
		return wire.Op{}, false
	}
	op, age, ok := e.freeze()
	if ok {
		e.lim.count.ops.Add(1)
		e.lim.hist.stale(age)
	}
	return op, ok
}

// freeze also returns the ns since the view was received; negative: there is
// none.
func (e *entry) freeze() (op wire.Op, age int64, ok bool) {
	l := e.lim
	e.lock()
	defer e.unlock()
	if e.dead {
		return wire.Op{}, -1, false
	}
	epoch, now := l.hub.clock.Stamp() // the sync may be due long after the last call
	e.waiters = slicesDeleteGone(e.waiters)
	e.carried = min(e.front(now), maxAsks)
	r := e.rules.Load()
	t := l.terms(r, now)
	t.lost = l.hub.resync.lost[e.tag()].Load()
	age = -1
	if e.state.view.known {
		age = now - e.state.view.received
	}
	e.begin(now)
	if t.closing { // pay, and ask for nothing
		e.carried = 0
	}
	var asks []int64
	for _, w := range e.waiters[:e.carried] {
		asks = append(asks, w.n)
	}
	owed := e.state.owed() + e.state.share.admitted
	again := e.state.resync
	said, ok := e.state.freeze(&t, asks, now)
	if !ok {
		e.carried = 0
	} else if again {
		l.count.resynced.Add(1)
	}
	l.count.forgiven.Add(owed - e.state.owed() - e.state.share.admitted)
	e.end(&t, epoch, l.alone(e.tag()), now)
	e.sent = r
	said.Since = r.since(now)
	return wire.Op{Key: l.hub.names.State(e.tag(), l.cfg.Name, e.name), Limit: r.limit, Op: said}, age, ok
}

// front puts those who ask under the limit of who has waited longest before
// the others, gives the entry that limit, and says how many they are: an op
// has one.
func (e *entry) front(now int64) int {
	if len(e.waiters) == 0 {
		return 0
	}
	first := e.waiters[0].by
	others := 0
	for _, w := range e.waiters {
		if w.by.limit != first.limit {
			others++
		}
	}
	if others > 0 {
		rank := func(w *waiter) int {
			if w.by.limit != first.limit {
				return 1
			}
			return 0
		}
		slices.SortStableFunc(e.waiters, func(a, b *waiter) int { return rank(a) - rank(b) })
	}
	e.adapt(first, now)
	return len(e.waiters) - others
}

// Settle is for the sync engine. The view counts as received now, under the
// lock: never earlier than it was.
func (e *entry) Settle(a ratesync.Answer) {
	l := e.lim
	e.lock()
	defer l.found(e.sent.Bucket, a.Level) // last: the lock is free then
	if e.dead {                           // closed meanwhile
		defer e.unlock()
		l.count.acked.Add(e.state.inflight)
		l.count.refunded.Add(e.state.giving)
		e.state.drop()
		l.count.debited.Add(a.Granted + a.Lease)
		l.count.lost.Add(a.Granted + a.Lease)
		return
	}
	epoch, now := l.hub.clock.Stamp()
	r := e.rules.Load()
	t := l.terms(r, now)
	level := a.Level
	changed := e.sent.limit != r.limit
	if from := e.sent.Bucket; changed && !t.windowed() {
		a.Level, a.Cap = r.Bucket.Convert(a.Level, from), r.Bucket.Convert(a.Cap, from)
	}
	e.begin(now)
	l.count.refunded.Add(e.state.giving)
	if a.Dropped {
		l.count.dropped.Add(e.state.inflight)
	} else {
		l.count.acked.Add(e.state.inflight)
	}

	// Calls that left are not served; their units go to others while they live.
	waiting := make([]int64, 0, len(e.waiters))
	present := e.waiters[:0]
	carried := 0
	for i, w := range e.waiters {
		if w.gone {
			continue
		}
		if i < e.carried {
			carried++
		}
		present = append(present, w)
		waiting = append(waiting, w.n)
	}
	clear(e.waiters[len(present):])
	e.waiters, e.carried = present, 0

	l.hub.clocks.heard(e.tag(), a.RedisNow, l.hub.clock.At(a.Sent), now)
	pending := e.state.pending
	said := answer{Answer: a.Answer, redisNow: a.RedisNow, sent: l.hub.clock.At(a.Sent), carried: carried}
	var served []bool
	var delays []int64 // of a queue
	var lost int64
	if r.Bucket.Queue {
		said.each = e.sent.each()
		said.at = l.hub.clocks.at(e.tag(), a.RedisNow, said.sent, now)
		delays, lost = e.state.settleSlots(&t, said, waiting, now)
	} else {
		served, lost = e.state.settle(&t, said, waiting, now)
	}
	if changed && t.windowed() {
		e.state.view = view{}
	}
	l.count.debited.Add(a.Granted + a.Lease)
	l.count.netted.Add(pending - e.state.pending)
	l.count.lost.Add(lost)

	again := syncNot
	var still, answered []*waiter
	for i, w := range e.waiters {
		v := verdict{action: admit, source: hybridlimit.SourceRedis}
		switch {
		case delays != nil && delays[i] >= 0:
			v.delay = delays[i]
		case delays != nil || !served[i]:
			other := w.by.limit != r.limit
			if other && e.state.held() < w.n {
				v = verdict{action: ask, sync: syncNow} // the next op is its
				if e.state.stuckAt == 0 {
					e.state.stuckAt = now
				}
			} else {
				v = e.state.judge(&t, w.n, now)
			}
			switch {
			case v.source == hybridlimit.SourceDenyCache:
				v.source = hybridlimit.SourceRedis // it has just said so
			case v.action == ask && i < carried:
				// Refused. What has come back since is for whoever comes next:
				// who asked again would wait for MaxWait where a unit comes
				// back faster than a round trip takes.
				until := e.state.provedUntil(&t, w.n)
				if !t.windowed() { // and the level may have been another limit's
					until = e.state.proved(e.sent.Bucket, level, w.n)
				}
				v = verdict{action: deny, source: hybridlimit.SourceRedis, retry: max(0, until-now)}
			}
			again = max(again, v.sync)
		}
		if v.action == ask {
			still = append(still, w)
			continue
		}
		w.v = v
		answered = append(answered, w)
	}
	e.waiters = still
	e.end(&t, epoch, l.alone(e.tag()), now)
	left, ends := e.remaining(&t, now), e.windowEnd(&t, now)
	for _, w := range answered {
		w.v.left, w.v.ends, w.done = left, ends, true
		w.out <- w.v
	}
	if e.state.pending+e.state.refunds.units() > 0 {
		again = max(again, syncLazily)
	}
	e.unlock()
	e.sync(again)
}

// Drop is for the sync engine.
func (e *entry) Drop() {
	e.lock()
	defer e.unlock()
	e.carried = 0
	e.lim.count.dropped.Add(e.state.drop())
}

// sync queues the entry as a verdict wants. Call it without e.mu.
func (e *entry) sync(w when) {
	if w == syncNot || e.lim.mute() {
		return
	}
	switch w {
	case syncNow:
		e.lim.hub.engine.Enqueue(e.tag(), e, time.Time{})
	case syncLazily:
		e.lim.hub.engine.Enqueue(e.tag(), e, e.lim.lazily(time.Now()))
	}
}

// leave takes a waiter out; if it was answered meanwhile, that stands.
func (e *entry) leave(w *waiter) (verdict, bool) {
	e.lock()
	defer e.unlock()
	if w.done {
		return <-w.out, true
	}
	w.gone = true
	return verdict{}, false
}

func slicesDeleteGone(ws []*waiter) []*waiter {
	kept := ws[:0]
	for _, w := range ws {
		if !w.gone {
			kept = append(kept, w)
		}
	}
	clear(ws[len(kept):])
	return kept
}

// tryEvict marks the entry dead unless it owes, waits, or is in use.
func (e *entry) tryEvict(now int64) bool {
	if !e.tryLock() {
		return false
	}
	defer e.unlock()
	e.begin(now)
	alone := e.lim.alone(e.tag())
	if e.state.share.admitted > 0 && alone {
		e.forgive(now)
	}
	if len(e.waiters) > 0 || !e.state.idle() {
		return false
	}
	if alone {
		e.goOut(now)
	}
	e.lim.count.expired.Add(e.state.held())
	e.die()
	return true
}

// die marks the entry dead, and takes it out of its lane's queue: else what is
// forgotten while Redis is away would stay in memory until it is back. A sync
// that somebody still wants of it comes to nothing. Call it under e.mu: a lane's
// lock comes after an entry's, and nothing of an entry is called under it.
func (e *entry) die() {
	e.dead = true
	e.lim.hub.engine.Remove(e.tag(), e)
}
