package leased

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
)

// shard is a part of the keys of a Limiter under one lock.
type shard struct {
	mu  sync.Mutex
	lru *simplelru.LRU[string, *entry]

	_ [64]byte // keeps neighbours' locks off this cache line
}

// entry is a key in memory. The lock of its shard guards it, except for the first fields, which do not change.
type entry struct {
	lim   *Limiter
	shard *shard
	key   string
	tag   int

	ratelease.Hand
	plan    *account.Plan
	terms   ratelease.Terms // of the plan
	queued  bool            // an exchange waits for its message
	listed  bool            // in Limiter.live
	gone    bool            // not in memory any more
	began   bool            // the fallback has decided since the last answer
	leaving bool            // the next exchange gives everything back
	waits   []*waitingCall  // for the answer to the next exchange, or to the one in flight
}

// tag returns the tag of a key. It calls Config.TagBy.
func (l *Limiter) tag(key string) int {
	if l.TagBy != nil {
		key = l.TagBy(key)
	}
	return l.rates.env.Names.Tag(key)
}

func (l *Limiter) shard(key string) *shard {
	return &l.shards[maphash.String(l.seed, key)%uint64(len(l.shards))]
}

// lock returns the entry of a key, and makes one if there is none. Its shard is locked. It may run a callback of the user.
func (l *Limiter) lock(key string, plan *account.Plan) *entry {
	s := l.shard(key)
	s.mu.Lock()
	e, ok := s.lru.Get(key)
	if !ok {
		s.mu.Unlock()
		tag := l.tag(key)
		s.mu.Lock()
		if e, ok = s.lru.Get(key); !ok {
			key = strings.Clone(key)
			e = &entry{lim: l, shard: s, key: key, tag: tag}
			s.lru.Add(key, e)
		}
	}
	if e.plan != plan {
		e.follow(plan)
	}
	return e
}

// copied returns a copy of the entry of a key, which is an empty one if there is none. Its shard is locked.
func (s *shard) copied(l *Limiter, key string, tag int, plan *account.Plan) (e entry, known bool) {
	e = entry{lim: l, key: key, tag: tag}
	e.follow(plan)
	have, known := s.lru.Peek(key)
	if known {
		e.Hand = have.Hand
	}
	return e, known
}

// follow gives the entry a limit that ratelease.Fits has accepted.
func (e *entry) follow(plan *account.Plan) {
	e.plan, e.terms = plan, ratelease.TermsOf(plan.Limit.Rate, plan.Limit.Period, plan.Limit.BurstSize())
}

// evicted counts what is lost with a key. Its lease ends by itself, and its share stays. The entry is locked.
func (l *Limiter) evicted(_ string, e *entry) {
	l.Evicted.Add(1)
	l.Count.Dropped.Add(e.Forgo())
	e.gone = true
}

// WriteOff counts the units that a closed limiter owes as dropped.
func (l *Limiter) WriteOff() {
	l.each(func(e *entry) { l.Count.Dropped.Add(e.Forgo()) })
}

// conditions returns the conditions of a decision. The entry is locked.
func (e *entry) conditions() ratelease.Conditions {
	l := e.lim
	return ratelease.Conditions{
		Terms: e.terms, Procs: l.party.Size(), Wait: int64(l.MaxWait),
		Away: l.control.Mute() || l.rates.env.Broken(e.tag),
	}
}

// left returns the units in hand, and those in Redis as far as they are known. The entry is locked.
func (e *entry) left(now int64) int64 {
	if !e.Known() {
		return e.plan.Burst
	}
	return e.Left(now) + max(0, int64(e.Level(&e.terms, now)))
}

// answer completes the answer to a call. The entry is locked.
func (e *entry) answer(res hybridlimit.Result, n, left, now int64) hybridlimit.Result {
	res.Limit, res.Policy = e.plan.Burst, e.lim.Name
	res.Remaining, res.ResetAfter = min(left, res.Limit), time.Duration(e.Full(&e.terms, now))
	if res.Allowed {
		res.Granted = n
		return res
	}
	res.Remaining = min(res.Remaining, n-1)
	if res.RetryAfter == 0 {
		res.RetryAfter = time.Duration(e.Retry(n, now))
	}
	return res
}

// alone decides a call without Redis. The entry is locked.
func (e *entry) alone(n, now int64) hybridlimit.Result {
	l := e.lim
	f := e.plan.Fallback(l.control.Fallback(), l.Floor, l.party.Size())
	res := hybridlimit.Result{Source: hybridlimit.SourceFallback}
	if !e.began && e.Known() { // it begins with this process's part of what was left
		l.Shares.Lower(e.key, f.Size, e.Level(&e.terms, now)*float64(f.Burst)/float64(e.plan.Burst), now)
	}
	e.began = true
	switch {
	case !f.Counts():
		res.Allowed = f.Kind == fallback.KindAllowAll
	case l.Shares.Take(e.key, f.Size, n, now):
		res.Allowed = true
	default:
		wait := l.Shares.Wait(e.key, f.Size, n, now)
		if wait < 0 { // only Redis can admit it, and may be back at any moment
			wait = e.Retry(n, now)
		}
		res.RetryAfter = time.Duration(max(wait, int64(time.Millisecond)))
	}
	switch {
	case !res.Allowed:
	case e.gone:
		l.Count.Dropped.Add(n)
	default:
		e.Local(n)
	}
	left := l.Shares.Left(e.key, f.Size, now)
	return e.answer(res, n, max(0, int64(left)), now)
}

// listLive adds a key that has a lease to those that Beat looks at. The entry is locked.
func (l *Limiter) listLive(e *entry) {
	if e.listed {
		return
	}
	e.listed = true
	l.liveMu.Lock()
	l.live = append(l.live, e)
	l.liveMu.Unlock()
}

// Beat gives back what idle keys have, before their leases end. It is called once a second. It visits the keys with a
// lease.
func (l *Limiter) Beat() {
	l.liveMu.Lock()
	live := l.live
	l.live = nil
	l.liveMu.Unlock()
	now, kept := l.clock.Now(), live[:0]
	for _, e := range live {
		e.shard.mu.Lock()
		c := e.conditions()
		idle := !e.queued && len(e.waits) == 0 && e.Idle(&c, now)
		if idle {
			e.queued, e.leaving = true, true
		}
		if e.listed = e.Live(now) && !e.gone; e.listed {
			kept = append(kept, e)
		}
		e.shard.mu.Unlock()
		if idle {
			l.rates.lanes[e.tag].add(e)
		}
	}
	l.liveMu.Lock()
	l.live = append(l.live, kept...)
	l.liveMu.Unlock()
}

// each calls f for every key, with its shard locked.
func (l *Limiter) each(f func(*entry)) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, e := range s.lru.Values() {
			f(e)
		}
		s.mu.Unlock()
	}
}
