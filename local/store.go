package local

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// entry holds the data of a key. It is the first part of a cell.
type entry struct {
	*rare
	plan  *plan            // the limit in force: that of the last call
	state state            // in the same cell
	asks  refresh.Deadline // the next question to LimitFor
	seen  time.Duration    // shard time of the last call
}

// rare is the part of an entry that most keys do not need.
type rare struct {
	own  *plan  // from LimitFor; nil if that is the limiter's limit
	book *ahead // the bookings of a bucket; nil before the first
}

// none is the rare part of an entry that has none. Nothing writes to it: see write.
var none rare

// write returns the rare part of the entry, to be written.
func (e *entry) write() *rare {
	if e.rare == &none {
		e.rare = new(rare)
	}
	return e.rare
}

// cell is an entry with the state of its algorithm, in one piece of memory.
type cell[S any] struct {
	entry

	of S
}

// keep returns an entry with a state.
func keep[S any, P interface {
	*S
	state
}](of S) *entry {
	k := &cell[S]{of: of}
	k.state = P(&k.of)
	return &k.entry
}

// newEntry returns an unused entry under p, the limit of the first call.
func newEntry(p, own *plan) *entry {
	var e *entry
	switch p.limit.Algorithm {
	case hybridlimit.AlgLeakyQueue:
		e = keep(queue{})
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgCalendarWindow:
		e = keep(fixed{})
	case hybridlimit.AlgSlidingWindow:
		e = keep(sliding{})
	case hybridlimit.AlgSlidingLog:
		e = keep(journal{})
	default:
		e = keep(bucket{level: float64(p.burst)})
	}
	e.plan, e.rare = p, &none
	if own != nil {
		e.write().own = own
	}
	return e
}

// use makes p the limit in force.
func (e *entry) use(p *plan, now time.Duration) {
	if e.plan != p {
		e.turn(p, now)
	}
}

func (e *entry) turn(p *plan, now time.Duration) {
	if e.plan.limit != p.limit {
		e.state.advance(e.plan, now)
		e.state.change(e.plan, p, now)
		if e.book != nil {
			e.write().book = nil
		}
	}
	e.plan = p
}

func (e *entry) look(now time.Duration, n int64) look {
	e.state.advance(e.plan, now)
	return e.state.look(e.plan, now, n)
}

// fresh reports whether the key has the state of an unused one.
func (e *entry) fresh(now time.Duration) bool { return e.look(now, 0).reset == 0 }

// decide takes n units if floor more are there. seen is the look after that: for n and the floor if nothing was taken,
// else for 0.
func (e *entry) decide(now time.Duration, n, floor int64) (delay time.Duration, ok bool, seen look) {
	most := hybridlimit.Never // a queue makes the call wait
	if b, is := e.state.(*bucket); is {
		if floor == 0 {
			return b.decide(e.plan, now, n)
		}
		most = 0
	}
	e.state.advance(e.plan, now)
	need := n + floor
	var b booking
	if floor == 0 || e.state.look(e.plan, now, need).retry == 0 {
		b = e.state.take(e.plan, now, n, most)
	}
	if b.ok {
		need = 0
	}
	return b.delay, b.ok, e.state.look(e.plan, now, need)
}

// reserve takes n units if they are available within most, and floor more are there. With a floor, it takes no units of
// the future.
func (e *entry) reserve(now time.Duration, n, floor int64, most time.Duration) booking {
	e.state.advance(e.plan, now)
	var b booking
	if floor == 0 || e.state.look(e.plan, now, n+floor).retry == 0 {
		b = e.state.take(e.plan, now, n, most)
	}
	if !b.ok && b.delay == 0 {
		b.retry = e.state.look(e.plan, now, n+floor).retry
		b.delay = b.retry
	}
	return b
}

func (e *entry) refund(now time.Duration, n int64) {
	e.state.advance(e.plan, now)
	if back := e.state.refund(e.plan, now, n); e.book != nil {
		e.book.given += back
	}
}

// charge takes units, whether they are available or not. It separates the bookings after it from the bookings before
// it.
func (e *entry) charge(now time.Duration, n int64) {
	if e.book != nil {
		e.book.seal()
	}
	e.state.advance(e.plan, now)
	e.state.charge(e.plan, now, n)
}

// receipt returns the receipt of n units just taken. later: they had not refilled yet.
func (e *entry) receipt(now time.Duration, n int64, later bool) receipt {
	r := receipt{mark: e.state.mark(e.plan, now), n: n}
	if _, is := e.state.(*bucket); !is {
		return r
	}
	if e.book == nil {
		e.write().book = new(ahead)
	}
	if r.ahead = later; later {
		e.book.join(n, r.level+float64(n) >= 0)
	} else {
		e.book.seal()
	}
	r.book, r.given, r.tail = e.book, e.book.given, e.book.tail
	return r
}

func (e *entry) undo(now time.Duration, r receipt) {
	e.state.advance(e.plan, now)
	if r.book == nil {
		e.state.undo(e.plan, now, r.mark, 0, r.n)
		return
	}
	if e.book != r.book { // the limit has changed: the highest level since is unknown
		return
	}
	debt := e.state.mark(e.plan, now).level < 0
	back := e.state.undo(e.plan, now, r.mark, e.book.given-r.given, e.book.leave(r, debt))
	e.book.gap(r, back)
	e.book.given += back
}

// store is the keys of a limiter.
type store struct {
	seed   maphash.Seed
	shards []shard // a power of two
}

// index returns the index of a key's shard.
func (s *store) index(key string) int {
	return int(maphash.String(s.seed, key) & uint64(len(s.shards)-1))
}

// each calls f with one locked shard after the other.
func (s *store) each(f func(s *shard)) error {
	for i := range s.shards {
		if err := s.shards[i].visit(f); err != nil {
			return err
		}
	}
	return nil
}

// sweepKeys is the number of keys that one call drops if they are idle. With more than one, a shard empties faster than
// new keys fill it. It is small, so that no call pays for many.
const sweepKeys = 2

// shard is a part of the keys under one lock. Tokens are taken under the lock too, so that no key is evicted while a
// caller takes from it: those units would be lost.
type shard struct {
	mu      sync.Mutex
	closed  bool
	keys    *simplelru.LRU[string, *entry]
	base    *plan                    // of keys without a limit of their own
	counted *plan                    // the last base that was not static
	room    int                      // the largest number of keys
	paused  map[string]time.Duration // the ends of pauses; nil: there never was one
	now     time.Duration            // latest time of any call, since the limiter's start
	sweepAt time.Duration            // no key is idle before this
	lost    atomic.Uint64            // keys evicted before they were full again

	_ [64]byte // keeps neighbours' locks off this cache line
}

func (s *shard) open(room int, base *plan) {
	s.room, s.base, s.sweepAt = room, base, base.idle
	s.keys = newKeys(room)
	if !static(base.limit.Algorithm) {
		s.counted = base
	}
}

func newKeys(room int) *simplelru.LRU[string, *entry] {
	keys, _ := simplelru.NewLRU[string, *entry](room, nil) // the error is for a room below 1
	return keys
}

// visit calls f under the lock of the shard.
func (s *shard) visit(f func(s *shard)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	f(s)
	return nil
}

// tick moves the shard's clock to now. It returns the shard's time, and the time by which now is behind it.
//
// Callers read the clock before they take the lock, so their times arrive out of order, by milliseconds if a caller is
// preempted in between. A state must not go back in time: it would refill the time between the two again.
func (s *shard) tick(now time.Duration) (at, behind time.Duration) {
	if now < s.now {
		return s.now, s.now - now
	}
	s.now = now
	return now, 0
}

// change makes p the limit of the shard and of its keys. It does not wait for a key's next call: by then, the refill at
// the old rate could no longer be computed.
func (s *shard) change(p *plan, now time.Duration) {
	at, _ := s.tick(now)
	s.base = p
	if static(p.limit.Algorithm) {
		return // the usage of keys stays, and comes back at the old rate
	}
	for _, e := range s.keys.Values() {
		if s.counted != nil && e.own == nil && e.plan.limit == s.counted.limit {
			e.use(p, at)
		}
	}
	s.counted = p
}

// sweep drops up to two keys without a call for longer than idle, which are the ones that the LRU evicts first. Exactly
// idle is not enough: a bucket may lack less than a nanosecond's refill. A key that is not full yet goes to the other
// end of the LRU, as if it had been used now. The key of this call was used now, so the shard is not empty.
func (s *shard) sweep() {
	idle := s.base.idle
	for range sweepKeys {
		key, e, _ := s.keys.GetOldest()
		if e.seen > s.now-idle-1 {
			s.sweepAt = e.seen + min(idle, hybridlimit.Never-e.seen)
			return
		}
		if e.fresh(s.now) {
			s.keys.Remove(key)
			continue
		}
		s.keys.Get(key)
		e.seen = s.now
	}
}

// place is a key in its shard, which is locked, for one call.
type place struct {
	*shard
	key   string
	entry *entry           // nil: the key is not held
	own   *plan            // from LimitFor, for a key that is not held
	asks  refresh.Deadline // of a key that is not held
	peeks bool             // the call is no use of the key

	plan   *plan         // that applies to the call
	floor  int64         // units that the call leaves to other classes
	at     time.Duration // shard time of the call
	behind time.Duration // the caller's time is this much earlier
}

// find finds the entry of the key. Unless the call only peeks, the key is now the last one that the LRU evicts.
func (p *place) find() {
	if p.peeks {
		p.entry, _ = p.keys.Peek(p.key)
		return
	}
	p.entry, _ = p.keys.Get(p.key)
}

// limit returns the plan of a call that brings no limit.
func (p *place) limit() *plan {
	own := p.own
	if p.entry != nil {
		own = p.entry.own
	}
	if own != nil {
		return own
	}
	return p.base
}

// use returns the entry of the key, used now and under the plan of the call. It makes an unused entry for a key that
// has none. request is the request of the units that are taken next: only logs use it.
func (p *place) use(request string) *entry {
	if p.entry == nil {
		p.enter()
	}
	e := p.entry
	e.seen = p.now
	if p.now > p.sweepAt {
		p.sweep()
	}
	e.use(p.plan, p.at)
	if j, ok := e.state.(*journal); ok {
		j.request = request
	}
	return e
}

// enter makes the entry of a key, and evicts the one that was used least recently if the shard is full.
func (p *place) enter() {
	if p.keys.Len() == p.room {
		if _, old, _ := p.keys.GetOldest(); !old.fresh(p.now) { // before the removal, which also waits for memory
			p.lost.Add(1)
		}
		p.keys.RemoveOldest()
	}
	p.entry = newEntry(p.plan, p.own)
	p.entry.asks = p.asks
	p.keys.Add(strings.Clone(p.key), p.entry)
}

// glance returns the entry of the key without marking it as used. For a key without one, it returns an unused entry
// that the shard does not hold.
func (p *place) glance() *entry {
	if p.entry != nil {
		return p.entry
	}
	return newEntry(p.plan, p.own)
}
