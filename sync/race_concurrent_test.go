package ratesync_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// instant answers at once, so that lanes become idle as often as possible.
func instant(_ context.Context, a attempt) (wire.Reply, error) { return replyTo(a), nil }

// A node that is enqueued while its lane becomes idle is not forgotten. Each round waits
// for its answer; a forgotten node would block the test for ever.
func TestEnqueueWhileGoingIdle(t *testing.T) {
	w := newWorld(t, calm, nil)
	w.redis.script = instant
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			it := newItem(t, fmt.Sprint(g), 0)
			answered := make(chan struct{}, 1)
			it.onSettle = func(ratesync.Answer) { answered <- struct{}{} }
			for i := range 5000 {
				it.owe(1)
				w.Enqueue(0, it, now().Add(time.Duration(i%3)*time.Microsecond))
				<-answered
			}
		})
	}
	all.Wait()
}

// TestConcurrentUse runs Enqueue, Idle, Stats, RTT and Close concurrently.
func TestConcurrentUse(t *testing.T) {
	for range 20 {
		w := newWorld(t, calm, nil)
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n%5 == 0 {
				return wire.Reply{}, errLost
			}
			return instant(ctx, a)
		}
		var users sync.WaitGroup
		items := make([]*item, 64)
		for i := range items {
			items[i] = newItem(t, fmt.Sprint(i), 0)
		}
		for g := range 4 {
			users.Go(func() {
				for i := range 500 {
					n := (g*31 + i) % len(items)
					items[n].owe(1)
					w.Enqueue(n%tags, items[n], now().Add(time.Duration(i%7-3)*time.Millisecond))
				}
			})
		}
		users.Go(func() {
			for range 10 {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
				_ = w.Idle(ctx)
				cancel()
				w.Stats()
				w.RTT()
			}
		})
		users.Go(func() {
			<-time.After(5 * time.Millisecond)
			w.Close()
		})
		users.Wait()
		total := int64(0)
		for _, it := range items {
			pending, inflight, paid, lost := it.split()
			if inflight != 0 {
				t.Errorf("%s: %d units in flight after Close", it.name, inflight)
			}
			total += pending + paid + lost
		}
		if total != 2000 {
			t.Errorf("%d units, want 2000", total)
		}
	}
}

// Regression: two concurrent calls of Close dropped frozen ops twice.
func TestCloseAtOnce(t *testing.T) {
	for range 50 {
		w := newWorld(t, calm, nil)
		sent := make(chan struct{}, tags)
		w.redis.script = func(ctx context.Context, _ attempt) (wire.Reply, error) {
			sent <- struct{}{}
			return hangs(ctx)
		}
		items := make([]*item, tags)
		for i := range items {
			items[i] = newItem(t, fmt.Sprint(i), 1)
			w.Enqueue(i, items[i], now())
		}
		for range items {
			<-sent
		}
		var closing sync.WaitGroup
		for range 4 {
			closing.Go(func() {
				w.Close()
				for _, it := range items {
					if it.account() != [4]int64{0, 0, 0, 1} {
						t.Errorf("%s after Close: %v", it.name, it.account())
					}
				}
			})
		}
		closing.Wait()
	}
}
