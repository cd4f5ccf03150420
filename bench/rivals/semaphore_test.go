package rivals_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestSemaphore(t *testing.T) {
	s := &rivals.Semaphore{Redis: redistest.New(t).Client(t), Limit: 3, Lease: 600 * time.Millisecond}
	var ends []func()
	for i := range 5 {
		end, ok, err := s.Acquire(t.Context(), "k")
		if err != nil || ok != (i < 3) {
			t.Fatalf("call %d: %v, %v", i, ok, err)
		}
		if ok {
			ends = append(ends, end)
		}
	}
	if s.Messages() < 5 {
		t.Errorf("%d messages", s.Messages())
	}
	time.Sleep(s.Lease * 2) // the calls renew their leases
	if _, ok, _ := s.Acquire(t.Context(), "k"); ok {
		t.Error("a call is admitted beside three that run for longer than a lease")
	}
	for _, end := range ends {
		end()
		end()
	}
	end, ok, err := s.Acquire(t.Context(), "k")
	if err != nil || !ok {
		t.Fatalf("after all have ended: %v, %v", ok, err)
	}
	end()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := s.Acquire(gone, "k"); ok || err == nil {
		t.Errorf("a cancelled call: %v, %v", ok, err)
	}
}

// TestSemaphoreFreesTheDead adds the call of a process that has ended.
func TestSemaphoreFreesTheDead(t *testing.T) {
	rdb := redistest.New(t).Client(t)
	now, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	s := &rivals.Semaphore{Redis: rdb, Limit: 1, Lease: time.Second}
	rdb.ZAdd(t.Context(), "k", redisZ(now.Add(300*time.Millisecond), "dead"))
	began := time.Now()
	redistest.Eventually(t, 10*time.Second, "the permit of a dead call is free", func() bool {
		end, ok, err := s.Acquire(t.Context(), "k")
		if ok {
			end()
		}
		return err == nil && ok
	})
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("free after %v", took)
	}
}

// TestMessagesBesideTheSortedSet plays the same calls in a fleet of four processes with hybrid.Hub.Concurrency and with the sorted set.
// All messages count, the heartbeats too.
func TestMessagesBesideTheSortedSet(t *testing.T) {
	for _, test := range []struct {
		limit, callers int
		lasts          time.Duration
		fewer          float64 // times
	}{
		{200, 40, 2 * time.Millisecond, 20}, // ten permits a process or more, at a low load
		{8, 12, 20 * time.Millisecond, 1},   // two permits a process, and more callers than permits
	} {
		t.Run(fmt.Sprintf("%d permits, %d callers", test.limit, test.callers), func(t *testing.T) {
			const procs, span = 4, 3 * time.Second
			srv := redistest.New(t)
			set := &rivals.Semaphore{Redis: srv.Client(t), Limit: int64(test.limit), Lease: 10 * time.Second}
			var hubs []*hybrid.Hub
			var fleet []*hybrid.ConcurrencyLimiter
			for range procs {
				h, err := hybrid.NewHub(srv.Client(t), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { h.Close() })
				l, err := h.Concurrency(hybridlimit.Concurrent(int64(test.limit)), hybrid.ConcurrencyConfig{Name: "calls"})
				if err != nil {
					t.Fatal(err)
				}
				hubs, fleet = append(hubs, h), append(fleet, l)
			}
			redistest.Eventually(t, 30*time.Second, "Redis has learnt the tag", func() bool {
				p, res, err := fleet[0].Acquire(t.Context(), "k")
				p.Release()
				return err == nil && res.Allowed && res.Source != hybridlimit.SourceFallback
			})
			sent := func() (n int64) {
				for _, h := range hubs {
					n += int64(h.Stats().Messages)
				}
				return n
			}
			play := func(call func(proc int) bool) (calls int64) {
				var all sync.WaitGroup
				var count atomic.Int64
				until := time.Now().Add(span)
				for i := range test.callers {
					all.Go(func() {
						for time.Now().Before(until) {
							if call(i % procs) {
								count.Add(1)
							}
						}
					})
				}
				all.Wait()
				return count.Load()
			}
			before := sent()
			ours := play(func(proc int) bool {
				p, res, err := fleet[proc].Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				time.Sleep(test.lasts)
				p.Release()
				return res.Allowed
			})
			our := float64(sent()-before) / float64(ours)
			theirs := play(func(int) bool {
				end, ok, err := set.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				time.Sleep(test.lasts)
				if ok {
					end()
				}
				return ok
			})
			their := float64(set.Messages()) / float64(theirs)
			t.Logf("%.3f messages for each of %d calls, the sorted set %.3f for each of %d: %.0f times fewer", our, ours, their, theirs, their/our)
			if our*test.fewer > 1.02*their {
				t.Errorf("%.3f messages a call, the sorted set has %.3f, and %v times fewer were promised", our, their, test.fewer)
			}
		})
	}
}

func redisZ(at time.Time, member string) redis.Z {
	return redis.Z{Score: float64(at.UnixMicro()), Member: member}
}
