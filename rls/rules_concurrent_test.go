package rls

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// Reloads beside requests change no answer: of each key exactly the limit is admitted.
func TestReloadsBesideRequests(t *testing.T) {
	s := newServiceAt(t, redistest.New(t).Addr(), rule("requests_per_unit: 50"), Options{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := map[string]int{}
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				load(t, s, strings.Replace(rule("requests_per_unit: 50"), "10}", fmt.Sprint(10+i%2, "}"), 1))
			}
		}
	})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 400 {
				key := fmt.Sprint(i % 4)
				res, err := s.ShouldRateLimit(context.Background(), request("shop", desc("user", key), desc("unknown", "")))
				if err != nil {
					t.Error(err)
					return
				}
				if res.GetOverallCode() == pb.RateLimitResponse_OK {
					mu.Lock()
					admitted[key]++
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	wg.Wait()
	for key, n := range admitted {
		if n != 50 {
			t.Errorf("key %s: %d admitted", key, n)
		}
	}
	if len(admitted) != 4 {
		t.Errorf("%v", admitted)
	}
}

// Reloads that change floors beside requests of all verbs: each request has an answer, and of each account at most the limit is
// admitted. Units that Redis gave to a request during a reload are lost.
func TestFloorReloadsBesideRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, account("token bucket", "value: batch, floor: 0.2"), Options{})
		var reloads, callers sync.WaitGroup
		stop := make(chan struct{})
		loads := 0
		reloads.Go(func() {
			for ; ; loads++ {
				load(t, s, account("token bucket", []string{"value: batch, floor: 0.2", "value: batch, floor: 0.3", "value: batch, floor: 0"}[loads%3]))
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
				}
			}
		})
		var mu sync.Mutex
		units := map[string]int{}
		for range 4 {
			callers.Go(func() {
				for i := range 300 {
					name := fmt.Sprint(i % 3)
					one, two := desc("account", name), desc("account", name, "priority", "batch")
					req, cost := request("shop", one), 1
					switch i % 5 {
					case 0:
						req = request("shop", two)
					case 1:
						req, cost = request("shop", one, two), 2
					case 2:
						req, cost = request("shop", two, one), 2
					case 3:
						req, cost = request("shop", hits(one, 0), hits(two, 0)), 0
					}
					time.Sleep(time.Millisecond)
					res, err := s.ShouldRateLimit(context.Background(), req)
					if err != nil {
						t.Error(err)
						return
					}
					if res.GetOverallCode() == pb.RateLimitResponse_OK {
						mu.Lock()
						units[name] += cost
						mu.Unlock()
					}
				}
			})
		}
		callers.Wait()
		close(stop)
		reloads.Wait()
		if loads < 3 {
			t.Fatalf("%d reloads", loads)
		}
		load(t, s, account("token bucket", "value: batch, floor: 0.2"))
		for name, n := range units {
			for range 120 {
				if admitted(t, s, desc("account", name)) {
					n++
				}
			}
			if n > 100 {
				t.Errorf("account %s: %d of 100 units were admitted", name, n)
			}
		}
	})
}

// A request that waits for a reload ends with its context, and an end of the hub ends it too.
func TestRequestsDuringAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, account("fixed window", "value: batch, floor: 0.2"), Options{})
		k := kind{domain: "shop", algorithm: hybridlimit.AlgFixedWindow}
		left := make(chan struct{})
		s.limiters.mu.Lock()
		have := s.limiters.of[k]
		have.left = left
		s.limiters.of[k] = have
		s.limiters.mu.Unlock()
		if err := have.limiter.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.ShouldRateLimit(ctx, request("shop", batch())); status.Code(err) != codes.Canceled {
			t.Errorf("a request whose context has ended: %v", err)
		}
		answers := make(chan string, 2)
		for _, d := range []*ratelimit.RateLimitDescriptor{batch(), given(batch(), 5, daily, 0)} {
			go func() { answers <- ask(t, s, request("shop", d)) }()
		}
		s.limiters.mu.Lock()
		if _, err := s.limiters.make(k, have.floors); err != nil {
			t.Error(err)
		}
		s.limiters.mu.Unlock()
		close(left)
		for range 2 {
			if got := <-answers; got != "ok: ok(79)" && got != "ok: ok(4)" {
				t.Errorf("a request that has waited: %s", got)
			}
		}
		s.limiters.hub.Close()
		if _, err := s.ShouldRateLimit(t.Context(), request("shop", batch())); status.Code(err) != codes.Unavailable {
			t.Errorf("after the end of the hub: %v", err)
		}
		set, err := ParseRules([]File{{Name: "a.yaml", Data: []byte(account("token bucket", "floor: 0.4"))}}, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetRules(set); err == nil {
			t.Error("rules with other floors are in force without a hub")
		}
	})
}

// A client that goes away while its request waits for Redis has taken nothing.
func TestCancelledClient(t *testing.T) {
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := newServiceAt(t, proxy.Addr(), modeRules, Options{})
	ready(t, s)
	proxy.Pause()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := s.ShouldRateLimit(ctx, request("shop", desc("user", "a")))
		done <- err
	}()
	cancel() // the call cannot end otherwise: it needs Redis
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	proxy.Resume()
	if got := ask(t, s, request("shop", desc("user", "a"))); got != "ok: ok(1)" {
		t.Error(got)
	}
}
