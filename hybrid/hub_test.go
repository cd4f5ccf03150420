package hybrid_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestClosingOneLimiterLeavesTheHubAlone(t *testing.T) {
	closings := map[string]func(*hybrid.Limiter) error{
		"Close":    (*hybrid.Limiter).Close,
		"Shutdown": func(l *hybrid.Limiter) error { shutdown(t, l); return nil },
	}
	for name, closing := range closings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				rdb := b.Client(nil)
				h := newHub(t, rdb, hybrid.HubConfig{})
				other := add(t, h, still(1000), hybrid.Config{Name: "other"})
				limit := still(1000)
				for round := range int64(3) {
					l := add(t, h, limit, hybrid.Config{Name: "api", Mode: hybrid.ModeDeferred, SyncInterval: time.Minute})
					time.Sleep(2 * time.Second)
					for range 10 {
						ask(t, l, "k", 1)
						ask(t, other, "k", 1)
					}
					messages := h.Stats().Messages
					if err := closing(l); err != nil {
						t.Fatal(err)
					}
					if h.Stats().Messages < messages {
						t.Error("the hub's count of messages went down")
					}
					if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
						t.Errorf("the closed limiter: %v", err)
					}
					if err := l.Close(); err != nil {
						t.Errorf("a second Close: %v", err)
					}
					s := l.Stats()
					balance(t, s)
					got := debited(t, rdb, "api", "k")
					if name == "Shutdown" && (s.Dropped != 0 || got != 10*(round+1)) {
						t.Errorf("round %d: Redis debited %d, %d were dropped", round, got, s.Dropped)
					}
					if name == "Close" && (s.Dropped == 0 || got+s.Dropped != 10*(round+1)-dropped(round)) {
						t.Errorf("round %d: Redis debited %d, %d were dropped of 10", round, got, s.Dropped)
					}
					limit.Burst += 10 // the name is free, also for another limit
				}
				shutdown(t, other)
				balance(t, other.Stats())
				if got := debited(t, rdb, "other", "k"); got < 30 {
					t.Errorf("the other limiter admitted 30, Redis debited %d", got)
				}
			})
		})
	}
}

// dropped returns the units that the earlier rounds of
// TestClosingOneLimiterLeavesTheHubAlone dropped: of ten calls the first asks
// Redis, and nine are owed.
func dropped(rounds int64) int64 { return 9 * rounds }

// TestClosingWhileASyncIsOut checks that a sync in flight is still accounted
// for after its limiter has closed.
func TestClosingWhileASyncIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		rdb := b.Client(nil)
		h := newHub(t, link.Client(nil), hybrid.HubConfig{})
		l := add(t, h, still(1000), hybrid.Config{Name: "api", Mode: hybrid.ModeDeferred})
		time.Sleep(2300 * time.Millisecond) // between two heartbeats: they have the connection
		for range 10 {
			ask(t, l, "k", 1)
		}
		link.Latency(0, 100*time.Millisecond)
		time.Sleep(80 * time.Millisecond) // past T: nine units are in flight
		if s := l.Stats(); s.Owed != 9 || debited(t, rdb, "api", "k") != 10 {
			t.Fatalf("owed %d, debited %d: want 9 applied and not answered", s.Owed, debited(t, rdb, "api", "k"))
		}
		ask(t, l, "k", 2) // two more units are owed
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if s := l.Stats(); s.Dropped != 2 || s.Owed != 9 {
			t.Errorf("closed with a sync out: %+v", s)
		}
		time.Sleep(time.Second)
		s := l.Stats()
		if s.Dropped != 2 || s.Owed != 0 || s.Paid != 9 {
			t.Errorf("after its answer: %+v", s)
		}
		if got := balance(t, s); got != debited(t, rdb, "api", "k") {
			t.Errorf("Redis debited %d, the limiter knows of %d", debited(t, rdb, "api", "k"), got)
		}
	})
}

func TestFleetIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var ls []*hybrid.Limiter
		for range 5 {
			ls = append(ls, newLimiter(t, b.Client(nil), hybridlimit.PerSecond(100), hybrid.Config{}))
			time.Sleep(10 * time.Millisecond)
		}
		counts := func() (n []int64) {
			for _, l := range ls {
				n = append(n, l.Stats().Fleet)
			}
			return n
		}
		want := func(n int64, when string) {
			t.Helper()
			for _, got := range counts() {
				if got != n {
					t.Errorf("%s: the fleet counts itself as %v, want %d each", when, counts(), n)
					return
				}
			}
		}
		time.Sleep(1100 * time.Millisecond)
		want(5, "after two heartbeats")
		if c := ls[0].Stats().Credit; c != 0 {
			t.Errorf("a new process has a credit of %d, want 0", c)
		}
		time.Sleep(time.Second)
		if c := ls[0].Stats().Credit; c != 1 {
			t.Errorf("credit %d, want 5 %% of 100 over 4 others", c)
		}

		shutdown(t, ls[4])
		ls = ls[:4]
		time.Sleep(2*time.Second + 10*time.Millisecond)
		want(5, "two beats after one left: one count alone may be of a wiped Redis")
		time.Sleep(time.Second)
		want(4, "three beats after one left")

		ls[3].Close()
		ls = ls[:3]
		time.Sleep(4900 * time.Millisecond)
		want(4, "less than 3 s and two more beats after one was closed")
		time.Sleep(1200 * time.Millisecond)
		want(3, "more than 3 s and three beats after one was closed")
	})
}
