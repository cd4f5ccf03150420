package rivals_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// must acquires a call that must be admitted.
func must(t *testing.T, l rivals.InFlight, key string) (release func()) {
	t.Helper()
	release, ok, err := l.Acquire(t.Context(), key)
	if err != nil || !ok {
		t.Fatalf("a call of %q: %v, %v", key, ok, err)
	}
	return release
}

// TestSemaphoreSendsWhatItCounts compares the counter with Redis's own figures.
func TestSemaphoreSendsWhatItCounts(t *testing.T) {
	rdb := redistest.New(t).Client(t)
	s := &rivals.Semaphore{Redis: rdb, Limit: 1, Lease: time.Hour}
	sent := func() int64 {
		by := redistest.Calls(t, rdb)
		return int64(by["evalsha"] + by["eval"] + by["zrem"])
	}
	for i, step := range []struct {
		what     string
		run      func()
		messages int64
	}{
		{"a script that Redis does not know", func() { must(t, s, "a") }, 2},
		{"a call and its end", func() { must(t, s, "b")() }, 2},
		{"a denial", func() {
			if _, ok, err := s.Acquire(t.Context(), "a"); ok || err != nil {
				t.Errorf("a second call of one: %v, %v", ok, err)
			}
		}, 1},
		{"a cancelled call", func() {
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if release, ok, err := s.Acquire(gone, "c"); ok || release != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled call: %v, %v", ok, err)
			}
			if n := rdb.Exists(t.Context(), "c").Val(); n != 0 {
				t.Error("a cancelled call holds a place")
			}
		}, 0},
		{"a release that is repeated", func() {
			end := must(t, s, "d")
			end()
			end()
		}, 2},
	} {
		counted, told := s.Messages(), sent()
		step.run()
		if counted, told = s.Messages()-counted, sent()-told; counted != step.messages || told != step.messages {
			t.Errorf("step %d, %s: %d messages, Redis has seen %d, want %d", i, step.what, counted, told, step.messages)
		}
	}
}

// TestSemaphoreRenews lets a call run for longer than its lease.
func TestSemaphoreRenews(t *testing.T) {
	rdb := redistest.New(t).Client(t)
	s := &rivals.Semaphore{Redis: rdb, Limit: 1, Lease: 900 * time.Millisecond}
	began := time.Now()
	end := must(t, s, "k")
	before := s.Messages()
	const renewals = 6
	redistest.Eventually(t, 30*time.Second, "the call has run for two leases", func() bool {
		return s.Messages() >= before+renewals+1 // Redis does not know the first one's script
	})
	if took := time.Since(began); took < renewals*s.Lease/3-s.Lease/6 {
		t.Errorf("%d renewals in %v, want one in each %v", renewals, took, s.Lease/3)
	}
	if _, ok, err := s.Acquire(t.Context(), "k"); ok || err != nil {
		t.Errorf("beside a call that runs for longer than its lease: %v, %v", ok, err)
	}
	end()
	sent := s.Messages()
	must(t, s, "k")()
	if rdb.Exists(t.Context(), "k").Val() != 0 || s.Messages() != sent+2 {
		t.Errorf("%d messages of a call after the end of another", s.Messages()-sent)
	}
}

// TestSemaphoreGivesUpADeadCall takes the place of a running call away. The call must not
// renew what it does not have, and its release must not end another call.
func TestSemaphoreGivesUpADeadCall(t *testing.T) {
	rdb := redistest.New(t).Client(t)
	s := &rivals.Semaphore{Redis: rdb, Limit: 1, Lease: 300 * time.Millisecond}
	dead := must(t, s, "k")
	if err := rdb.Del(t.Context(), "k").Err(); err != nil {
		t.Fatal(err)
	}
	other := &rivals.Semaphore{Redis: rdb, Limit: 1, Lease: time.Hour}
	must(t, other, "k")
	before := s.Messages()
	redistest.Eventually(t, 30*time.Second, "a renewal has failed", func() bool { return s.Messages() > before })
	if n := rdb.ZCard(t.Context(), "k").Val(); n != 1 {
		t.Errorf("%d calls in the set, want 1", n)
	}
	dead()
	if _, ok, err := s.Acquire(t.Context(), "k"); ok || err != nil {
		t.Errorf("the release of a dead call has freed the place of another: %v, %v", ok, err)
	}
}

// TestSemaphoreFreesTheDead ends the client of a process whose call runs.
func TestSemaphoreFreesTheDead(t *testing.T) {
	srv := redistest.New(t)
	own := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	killed := &rivals.Semaphore{Redis: own, Limit: 1, Lease: 900 * time.Millisecond}
	must(t, killed, "k")
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s := &rivals.Semaphore{Redis: srv.Client(t), Limit: 1, Lease: time.Hour}
	if _, ok, err := s.Acquire(t.Context(), "k"); ok || err != nil {
		t.Errorf("beside the call of a killed process, within its lease: %v, %v", ok, err)
	}
	redistest.Eventually(t, 30*time.Second, "the place of the killed process is free", func() bool {
		end, ok, err := s.Acquire(t.Context(), "k")
		if ok {
			end()
		}
		return err == nil && ok
	})
	if took := time.Since(began); took < killed.Lease/3 {
		t.Errorf("free after %v, with a lease of %v", took, killed.Lease)
	}
}
