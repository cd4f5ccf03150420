package ratesync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// ledger applies envelopes as Redis does, behind a network that loses, delays and repeats
// messages.
type ledger struct {
	mu      sync.Mutex // guards the rest, rng included
	rng     *rand.Rand
	last    map[string]int64 // sequence by envelope
	applied map[string]int64 // units by op key
	asked   map[string]int64 // units that were asked for and granted, by op key
	late    []attempt        // copies still in flight
	faulty  bool
}

func (l *ledger) deliver(a attempt) wire.Reply {
	r := replyTo(a)
	if a.env.Seq == 0 {
		l.grant(a)
		return r
	}
	switch last := l.last[a.env.Key]; {
	case a.env.Seq < last:
		return wire.Reply{Stale: true}
	case a.env.Seq == last:
		r.Seen = true
		return r
	}
	l.last[a.env.Key] = a.env.Seq
	for key, n := range a.owed() {
		l.applied[key] += n
	}
	l.grant(a)
	return r
}

func (l *ledger) grant(a attempt) {
	for i := range a.ops {
		l.asked[a.ops[i].Key] += a.ops[i].Asked()
	}
}

// script decides an attempt's fate with the lock held, then waits without it.
func (l *ledger) script(ctx context.Context, a attempt) (wire.Reply, error) {
	l.mu.Lock()
	fate := 9
	if l.faulty {
		fate = l.rng.IntN(10)
	}
	if a.env.Seq == 0 && (fate == 4 || fate == 5) { // it is sent once
		fate = 9
	}
	there, back := time.Duration(l.rng.Int64N(int64(rtt))), time.Duration(l.rng.Int64N(int64(rtt)))
	if fate == 8 {
		there = time.Duration(l.rng.Int64N(int64(2 * timeout)))
	}
	if fate == 7 {
		back = time.Duration(l.rng.Int64N(int64(2 * timeout)))
	}
	if len(l.late) > 0 && l.rng.IntN(4) == 0 {
		i := l.rng.IntN(len(l.late))
		l.deliver(l.late[i])
		l.late = append(l.late[:i], l.late[i+1:]...)
	}
	l.mu.Unlock()

	switch fate {
	case 0: // request lost, and the loss is noticed
		return wire.Reply{}, errLost
	case 1: // request lost, and the loss is not noticed
		return hangs(ctx)
	}
	if err := wait(ctx, there); err != nil { // a packet in flight arrives all the same
		l.keep(a)
		return wire.Reply{}, err
	}
	l.mu.Lock()
	r := l.deliver(a)
	l.mu.Unlock()
	switch fate {
	case 2: // reply lost
		return wire.Reply{}, errLost
	case 3:
		return hangs(ctx)
	case 4: // repeated by the network, later
		l.keep(a)
	case 5: // delivered twice at once
		l.mu.Lock()
		l.deliver(a)
		l.mu.Unlock()
	}
	if err := wait(ctx, back); err != nil {
		return wire.Reply{}, err
	}
	return r, nil
}

func (l *ledger) keep(a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, a)
}

// schedule is one run: many items that owe units at random times, and callers that ask for units of others, over a network
// that fails for a while.
type schedule struct {
	*world
	rng    *rand.Rand
	ledger *ledger
	items  []*item
	owed   []int64 // units given to each item
	asking sync.WaitGroup
}

// asks reports whether callers ask for units of an item.
func asks(i int) bool { return i%3 == 2 }

func newSchedule(t *testing.T, rng *rand.Rand) *schedule {
	s := &schedule{
		rng: rng,
		ledger: &ledger{
			rng:  rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())),
			last: map[string]int64{}, applied: map[string]int64{}, asked: map[string]int64{}, faulty: true,
		},
	}
	cfg := calm
	if rng.IntN(2) == 0 {
		cfg = breaker.Config{} // one that opens
	}
	s.world = newWorld(t, cfg, nil)
	s.redis.script = s.ledger.script
	for i := range 1 + rng.IntN(3*wire.MaxOps) {
		s.items = append(s.items, newItem(t, fmt.Sprint(i), 0))
		s.items[i].once = asks(i)
	}
	s.owed = make([]int64, len(s.items))
	return s
}

// act adds units to one item, and in most cases enqueues it.
func (s *schedule) act() {
	i := s.rng.IntN(len(s.items))
	n := s.rng.Int64N(4)
	if asks(i) && s.rng.IntN(8) > 0 {
		s.items[i].ask(1 + n)
		most := time.Duration(1 + s.rng.Int64N(int64(2*timeout)))
		s.asking.Go(func() { s.Exchange(s.t.Context(), i%tags, s.items[i], most) })
		s.pause()
		return
	}
	s.owed[i] += n
	s.items[i].owe(n)
	tag := i % tags // a key lives in one lane
	switch s.rng.IntN(4) {
	case 0:
		s.Enqueue(tag, s.items[i], now())
	case 1, 2:
		s.Enqueue(tag, s.items[i], now().Add(time.Duration(s.rng.Int64N(int64(50*time.Millisecond)))))
	}
	s.pause()
}

func (s *schedule) pause() {
	if s.rng.IntN(3) == 0 {
		time.Sleep(time.Duration(s.rng.Int64N(int64(20 * time.Millisecond))))
	}
}

// TestEveryUnitOnce checks that every unit is settled or dropped exactly once, under any
// fault of the network. Redis has applied every settled unit. The fake checks the other
// rules at each call: one batch per tag in flight, frozen content, sequences without a gap.
func TestEveryUnitOnce(t *testing.T) {
	rng := testenv.Rand(t)
	runs := testenv.Runs(200, 3000)
	var messages, failures, seen uint64
	for range runs {
		synctest.Test(t, func(t *testing.T) {
			s := newSchedule(t, rng)
			for range 300 {
				s.act()
			}
			closed := rng.IntN(3) == 0
			if closed {
				s.Close()
			}
			s.asking.Wait()
			if !closed {
				s.settle()
			}
			s.check(closed)
			st := s.Stats()
			messages, failures, seen = messages+st.Messages, failures+st.Failures, seen+st.Seen
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d messages, %d failures, %d seen before", messages, failures, seen)
	if failures == 0 || seen == 0 {
		t.Error("the schedules show no failures or no repetitions")
	}
}

// settle ends the faults of the network and pays all units.
func (s *schedule) settle() {
	s.ledger.mu.Lock()
	s.ledger.faulty = false
	s.ledger.mu.Unlock()
	for i, it := range s.items {
		s.Enqueue(i%tags, it, now())
	}
	if err := s.Idle(s.t.Context()); err != nil {
		s.t.Errorf("Idle: %v", err)
	}
}

func (s *schedule) check(closed bool) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for i, it := range s.items {
		pending, inflight, paid, lost := it.split()
		applied := s.ledger.applied[it.name]
		if sent, granted, more := s.ledger.asked[it.name], it.granted, it.uncertain+it.refused; sent < granted || sent > granted+more {
			s.t.Errorf("item %d: Redis has granted %d, %d were answered, %d may be lost", i, sent, granted, more)
		}
		switch {
		case inflight != 0 || pending+paid+lost != s.owed[i]:
			s.t.Errorf("item %d: owed %d; %d pending, %d in flight, %d paid, %d lost", i, s.owed[i], pending, inflight, paid, lost)
		case !closed && (pending != 0 || lost != 0):
			s.t.Errorf("item %d: %d pending and %d lost when idle", i, pending, lost)
		case applied < paid || applied > paid+lost: // dropped units may have arrived
			s.t.Errorf("item %d: %d paid, %d lost, Redis has applied %d", i, paid, lost, applied)
		}
	}
}

func (i *item) split() (pending, inflight, paid, lost int64) {
	a := i.account()
	return a[0], a[1], a[2], a[3]
}

var _ ratesync.Caller = (*fakeRedis)(nil)
