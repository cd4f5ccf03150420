package inflight

import (
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"sync"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// shard is a part of the keys of a Limiter under one lock.
type shard struct {
	mu     sync.Mutex
	keys   map[uint64]*entry // by the hash of the key; of equal hashes, the first
	taken  int64             // calls that found their permits at hand, since the last flush
	passed int64             // their permits

	_ [64]byte // keeps neighbours' locks off this cache line
}

// entry is a key in memory. The lock of its shard guards it, except where noted.
type entry struct {
	permits.Holding
	wakeup  // guarded by the waker
	lim     *Limiter
	shard   *shard
	key     string
	hash    uint64
	next    *entry // with an equal hash
	tag     int
	limit   int64           // permits
	own     bool            // limit is the key's own, by LimitFor
	dropped bool            // it is not in memory any more
	resets  []chan struct{} // calls that wait for a Reset that is not sent
	sent    []chan struct{} // for the Reset in flight
}

// waitState is the state of a waiting call.
type waitState uint8

const (
	isWaits waitState = iota
	isServed
	isDenied
	isShut
)

// waitingCall is a waiting call. The lock of the shard guards it until ready is closed.
type waitingCall struct {
	permits.Waiter
	ready  chan struct{} // closed with the end of the wait
	state  waitState
	source hybridlimit.Source
	limit  int64 // when the wait ended
	left   int64 // permits that are free then
}

// end ends the wait of a call.
func (w *waitingCall) end(e *entry, state waitState, source hybridlimit.Source) {
	w.state, w.source, w.limit, w.left = state, source, e.limit, e.left()
	close(w.ready)
}

// tag returns the tag of a key. It calls Config.TagBy.
func (l *Limiter) tag(key string) int {
	if l.TagBy != nil {
		key = l.TagBy(key)
	}
	return l.members.env.Names.Tag(key)
}

func (l *Limiter) shard(key string) (s *shard, hash uint64) {
	hash = maphash.String(l.seed, key)
	return &l.shards[hash%shardCount], hash
}

// find returns the entry of a key; nil: it has none. The shard is locked.
func (s *shard) find(hash uint64, key string) *entry {
	e := s.keys[hash]
	for e != nil && e.key != key {
		e = e.next
	}
	return e
}

// Flush counts the calls that found their permits at hand.
func (l *Limiter) Flush() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		calls, permits := s.taken, s.passed
		s.taken, s.passed = 0, 0
		s.mu.Unlock()
		l.Count.Allowed[hybridlimit.SourceLease].Add(calls)
		l.Count.Admitted.Add(permits)
	}
}

// entry returns the entry of a key with the shard locked, or an error without.
func (l *Limiter) entry(key string) (*entry, error) {
	s, hash := l.shard(key)
	s.mu.Lock()
	for {
		if l.control.Closed.Load() { // Close visits the shards after it has set this
			s.mu.Unlock()
			return nil, hybridlimit.ErrClosed
		}
		if e := s.find(hash, key); e != nil {
			return e, nil
		}
		if l.keys.Add(1) <= l.MaxKeys {
			break
		}
		l.keys.Add(-1)
		s.mu.Unlock()
		if !l.makeRoom() {
			return nil, hybridlimit.ErrTooManyKeys
		}
		s.mu.Lock()
	}
	e := &entry{lim: l, shard: s, key: key, hash: hash, next: s.keys[hash], tag: l.tag(key)}
	s.keys[hash] = e
	l.members.keys.Add(1)
	return e, nil
}

// makeRoom forgets a key that no call uses, and reports whether there was one. It looks at no key if it has found none,
// and none has come to be unused since: made-up keys would else cost a look at all keys for each call.
func (l *Limiter) makeRoom() bool {
	if !l.room.Swap(false) {
		return false
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, e := range s.keys {
			for ; e != nil; e = e.next {
				if e.Unused() && len(e.resets) == 0 {
					s.drop(e)
					s.mu.Unlock()
					l.room.Store(true)
					return true
				}
			}
		}
		s.mu.Unlock()
	}
	return false
}

// drop forgets a key. The shard is locked.
func (s *shard) drop(e *entry) {
	if head := s.keys[e.hash]; head != e {
		for head.next != e {
			head = head.next
		}
		head.next = e.next
	} else if e.next != nil {
		s.keys[e.hash] = e.next
	} else {
		delete(s.keys, e.hash)
	}
	e.dropped = true
	e.lim.keys.Add(-1)
	e.lim.members.keys.Add(-1)
	e.lim.members.waker.cancel(e)
}

// each calls f for every key, without a lock.
func (l *Limiter) each(f func(*entry)) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		all := make([]*entry, 0, len(s.keys))
		for _, e := range s.keys {
			for ; e != nil; e = e.next {
				all = append(all, e)
			}
		}
		s.mu.Unlock()
		for _, e := range all {
			f(e)
		}
	}
}

// conditions returns the conditions of a decision. The entry is locked.
func (l *Limiter) conditions(e *entry, now int64) permits.Conditions {
	st := l.members.standing.Load()
	c := permits.Conditions{
		Standing: st.Standing, Joins: st.joins, Limit: min(e.limit, permits.MaxLimit), Procs: l.party.Size(),
		Period: int64(member.PulseEvery), Exact: l.Exact, Away: l.control.LocalOnly() || l.members.env.Broken(e.tag), Ends: l.control.Closed.Load(),
	}
	c.Exact = c.Exact || c.Ends
	if c.Away || !c.Live(now) || e.Learns(now) {
		c.Share = l.share(&c)
	}
	return c
}

// floorDue and floorSaid are the states of the line about FallbackFloor in an outage.
const (
	floorDue = iota + 1
	floorSaid
)

// Beat logs once in an outage that the fleet may run more calls than the limit. It is called once a second.
func (l *Limiter) Beat() {
	switch env := &l.members.env; {
	case l.floored.CompareAndSwap(floorDue, floorSaid):
		env.Log.Event(tell.MsgFloor, slog.String("limiter", l.Name), slog.Int64("floor", l.Floor), slog.Int64("fleet", l.party.Size()))
	case !env.Away() && !l.control.Mute():
		l.floored.Store(0)
	}
}

// share returns the permits of a key that the fallback gives this process. The floor is for a Redis that does not
// answer. While Redis learns, other processes may hold all permits.
func (l *Limiter) share(c *permits.Conditions) int64 {
	switch l.control.Fallback() {
	case fallback.KindFull:
		return c.Limit
	case fallback.KindAllowAll:
		return math.MaxInt64 / 2
	case fallback.KindDenyAll:
		return 0
	}
	share := permits.Share(c.Limit, c.Procs)
	if least := min(l.Floor, c.Limit); c.Away && share < least {
		l.floored.CompareAndSwap(0, floorDue)
		return least
	}
	return share
}

// tune gives a locked entry its limit, and reports whether it is another one.
func (e *entry) tune(limit int64, own bool, now int64) bool {
	e.own = own
	if e.limit == limit {
		return false
	}
	e.limit = limit
	e.Adapt(now)
	return true
}

// retune gives a key in memory the limit that LimitFor has just returned, so that no call waits by an older one.
func (l *Limiter) retune(key string, most int64, own bool) {
	if !l.control.Keyed() {
		return // a change of the other limits visits all keys
	}
	s, hash := l.shard(key)
	s.mu.Lock()
	if e := s.find(hash, key); e != nil {
		if now := l.clock.Now(); e.tune(most, own, now) {
			e.turn(now)
			return
		}
	}
	s.mu.Unlock()
}

// left returns the free permits of the key, as far as this process knows.
func (e *entry) left() int64 {
	if e.Booked() == 0 && e.Free() == 0 {
		return max(0, e.limit-e.Used())
	}
	return max(0, min(e.limit, max(0, e.Usable()-e.Used())+e.Free()))
}

// turn goes on after an event: it ends the waits that can end, sends an op if one is due, and plans the next turn. The
// shard is locked, and turn unlocks it.
func (e *entry) turn(now int64) {
	l, s := e.lim, e.shard
	c := l.conditions(e, now)
	for w := e.Next(&c, now); w != nil; w = e.Next(&c, now) {
		source := hybridlimit.SourceRedis
		if w.Fallback {
			source = hybridlimit.SourceFallback
		}
		w.Caller.(*waitingCall).end(e, isServed, source)
	}
	for w := e.Denied(&c, now); w != nil; w = e.Denied(&c, now) {
		source := hybridlimit.SourceRedis
		if !w.Told() {
			source = hybridlimit.SourceFallback
		}
		w.Caller.(*waitingCall).end(e, isDenied, source)
	}
	due, wake := e.Settle(&c, now), e.Wake()
	switch {
	case due || !e.Unused() || len(e.resets) > 0:
	case c.Ends || e.Idle(&c, now):
		s.drop(e)
	case wake == 0:
		wake = now + forgetAfter
	}
	dropped := e.dropped
	if !dropped && e.Unused() {
		l.room.Store(true)
	}
	if wake > 0 && !dropped {
		l.members.waker.plan(e, wake)
	}
	s.mu.Unlock()
	if due {
		l.members.lanes[e.tag].add(e)
	}
	if dropped && c.Ends {
		l.endIfEmpty()
	}
}

// forgetAfter is the time (ns) after which a key that no call uses may be Idle.
const forgetAfter = 14e9

// again is turn for an entry that is not locked.
func (e *entry) again(now int64) {
	e.shard.mu.Lock()
	if e.dropped {
		e.shard.mu.Unlock()
		return
	}
	e.turn(now)
}

// ReleasePermits implements hybridlimit.PermitHolder.
func (e *entry) ReleasePermits(n int64) {
	e.shard.mu.Lock()
	if e.Release(n) || e.lim.control.Closed.Load() {
		e.turn(e.lim.clock.Now())
		return
	}
	if e.Unused() {
		e.lim.room.Store(true)
	}
	e.shard.mu.Unlock()
}

// forgo ends the wait for a Reset. The Reset itself stays due.
func (e *entry) forgo(done chan struct{}) {
	e.shard.mu.Lock()
	same := func(c chan struct{}) bool { return c == done }
	e.resets, e.sent = slices.DeleteFunc(e.resets, same), slices.DeleteFunc(e.sent, same)
	if e.Unused() {
		e.lim.room.Store(true)
	}
	e.shard.mu.Unlock()
}

// impatient makes a call wait for the answer of Redis only. It reports whether the call still waits.
func (e *entry) impatient(w *waitingCall) bool {
	e.shard.mu.Lock()
	waits := w.state == isWaits
	e.Hurry(&w.Waiter)
	e.turn(e.lim.clock.Now())
	return waits
}

// abandon ends the wait of a call whose ctx has ended.
func (e *entry) abandon(w *waitingCall) {
	e.shard.mu.Lock()
	if e.Leave(&w.Waiter) {
		w.end(e, isDenied, hybridlimit.SourceTimeout)
	}
	e.turn(e.lim.clock.Now())
}

// giveUp ends the wait of a call. If no answer has come for it, the fallback decides.
func (e *entry) giveUp(w *waitingCall) {
	l := e.lim
	e.shard.mu.Lock()
	now := l.clock.Now()
	if e.Leave(&w.Waiter) {
		c := l.conditions(e, now)
		c.Share = l.share(&c)
		switch {
		case w.Told():
			w.end(e, isDenied, hybridlimit.SourceRedis)
		case e.Fall(&c, w.N):
			w.end(e, isServed, hybridlimit.SourceFallback)
		default:
			w.end(e, isDenied, hybridlimit.SourceTimeout)
		}
	}
	e.turn(now)
}
