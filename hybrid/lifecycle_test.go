package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestShutdownPays(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				rdb := b.Client(nil)
				l := newLimiter(t, rdb, still(10_000), hybrid.Config{Mode: mode, SyncInterval: time.Hour})
				time.Sleep(2 * time.Second)
				keys := keysOf("k", 40)
				for range 20 {
					for _, k := range keys {
						ask(t, l, k, 1)
					}
				}
				owed := l.Stats().Owed
				if mode == hybrid.ModeDeferred && owed == 0 {
					t.Fatal("nothing is owed, so the test proves nothing")
				}
				shutdown(t, l)
				s := l.Stats()
				if s.Owed != 0 || s.Dropped != 0 || s.Admitted != 800 {
					t.Errorf("after Shutdown: %+v", s)
				}
				if got, want := debited(t, rdb, "api", keys...), balance(t, s); got != want {
					t.Errorf("Redis debited %d, the limiter knows of %d", got, want)
				}
				if mode != hybrid.ModeAuto && mode != hybrid.ModeStrict && debited(t, rdb, "api", keys...) != 800 {
					t.Errorf("Redis debited %d of 800", debited(t, rdb, "api", keys...))
				}
			})
		})
	}
}

// TestShutdownWaitsForALease checks that Shutdown waits for a sync in flight that
// fetches a lease and pays nothing. The units of the lease are then counted.
func TestShutdownWaitsForALease(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprint("dead ", dead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link, rdb := b.Link(), b.Client(nil)
				l := newLimiter(t, link.Client(nil), still(10_000), hybrid.Config{Mode: hybrid.ModeStrict})
				ask(t, l, "k", 1)
				link.Script(everySync(1, redistest.DelayReply(15*time.Millisecond)))
				for l.Stats().Granted == debited(t, rdb, "api", "k") {
					ask(t, l, "k", 1)
					time.Sleep(100 * time.Microsecond)
				}
				if dead {
					link.Refuse(true)
					link.CutAll()
				}
				shutdown(t, l) // nothing is owed, so Shutdown returns no error in either case
				s := l.Stats()
				if got, want := debited(t, rdb, "api", "k"), balance(t, s); !dead && got != want {
					t.Errorf("Redis debited %d, the limiter knows of %d", got, want)
				}
			})
		})
	}
}

func TestShutdownWithoutRedisSaysWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(1000), hybrid.Config{Mode: hybrid.ModeDeferred})
		time.Sleep(2 * time.Second)
		ask(t, l, "k", 1)
		b.Kill()
		for range 7 {
			ask(t, l, "k", 1)
		}
		owed := l.Stats().Owed
		if owed != 7 {
			t.Fatalf("%d units are owed, want 7", owed)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		err := l.Shutdown(ctx)
		if err == nil || !strings.Contains(err.Error(), "7 units") || !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("Shutdown without Redis: %v, want an error that names 7 units and wraps ErrUnavailable", err)
		}
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("Shutdown took %v", took)
		}
		s := l.Stats()
		if s.Dropped != 7 || s.Owed != 0 {
			t.Errorf("dropped %d and owed %d, want 7 and 0", s.Dropped, s.Owed)
		}
		balance(t, s)
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("after Shutdown: %v", err)
		}
		if err := l.Shutdown(t.Context()); err != nil {
			t.Errorf("a second Shutdown: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close after Shutdown: %v", err)
		}
	})
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		b.Kill()
		l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(1), hybrid.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := l.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"api"`) {
			t.Errorf("Ready without Redis: %v, want the deadline and the limiter's name", err)
		}
		b.Restart()
		if err := l.Ready(t.Context()); err != nil {
			t.Errorf("Ready: %v", err)
		}
		if n := l.Stats().Fleet; n != 1 {
			t.Errorf("ready with a fleet of %d, want 1", n)
		}
		l.Close()
		if err := l.Ready(t.Context()); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Ready of a closed limiter: %v", err)
		}

		b.Kill()
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		add(t, h, hybridlimit.PerSecond(1), hybrid.Config{Name: "a"})
		go func() { time.Sleep(time.Second); h.Close() }()
		if err := h.Ready(t.Context()); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Ready of a hub that closes meanwhile: %v", err)
		}
	})
}

// TestShutdownEndsByItself checks that Shutdown without a deadline returns while Redis
// is down, so that a program can end.
func TestShutdownEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "k", 1)
		b.Kill()
		for range 10 {
			ask(t, l, "k", 1)
		}
		began := time.Now()
		err := l.Shutdown(context.Background())
		if !errors.Is(err, hybridlimit.ErrUnavailable) || time.Since(began) > 300*time.Millisecond {
			t.Errorf("Shutdown without Redis: %v after %v", err, time.Since(began))
		}
	})
}

// TestReadyWithAFleetSize checks that a limiter that is told the size of its fleet is ready after one answer of Redis, and says soon
// that Redis is away.
func TestReadyWithAFleetSize(t *testing.T) {
	for _, tc := range []struct {
		name string
		away func(b *redistest.Bubble, link *redistest.MemLink)
		most time.Duration
		err  error
	}{
		{"Redis is there", func(*redistest.Bubble, *redistest.MemLink) {}, 150 * time.Millisecond, nil},
		{"Redis is 10 ms away", func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Latency(5*time.Millisecond, 5*time.Millisecond)
		}, 150 * time.Millisecond, nil},
		{"no server", func(b *redistest.Bubble, _ *redistest.MemLink) { b.Kill() }, 500 * time.Millisecond, hybridlimit.ErrUnavailable},
		{"no answer", func(_ *redistest.Bubble, link *redistest.MemLink) { link.Pause() }, 500 * time.Millisecond, hybridlimit.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				tc.away(b, link)
				l := newLimiter(t, link.Client(nil), hybridlimit.PerSecond(100), hybrid.Config{Hub: hybrid.HubConfig{FleetSize: 4}})
				began := time.Now()
				if err := l.Ready(t.Context()); !errors.Is(err, tc.err) || time.Since(began) > tc.most {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if s := l.Stats(); s.Fleet != 4 || s.Credit != 0 {
					t.Errorf("a fleet of %d, credit %d: others may not count this process yet", s.Fleet, s.Credit)
				}
			})
		})
	}
}

// TestShutdownTriesOnce checks a Shutdown while Redis is away: one more message, for at most 200 ms. If Redis answers it, all that is
// owed is paid.
func TestShutdownTriesOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		hang bool // a dead Redis takes messages
		back bool // when Shutdown begins, Redis is there again
		most time.Duration
	}{
		{"refused connections", false, false, 300 * time.Millisecond},
		{"silence", true, false, 300 * time.Millisecond},
		{"it is back", true, true, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				l := newLimiter(t, link.Client(nil), still(1000), hybrid.Config{Mode: hybrid.ModeDeferred})
				time.Sleep(2 * time.Second)
				ask(t, l, "k", 1)
				time.Sleep(time.Second)
				if tc.hang {
					link.Pause()
				} else {
					b.Kill()
				}
				for range 7 {
					ask(t, l, "k", 1)
					time.Sleep(time.Second) // the breaker opens
				}
				if l.Hub().Stats().Breaker.String() == "closed" {
					t.Fatal("the breaker is closed")
				}
				owed := l.Stats().Owed
				if tc.back {
					link.Resume()
				}
				began := time.Now()
				err := l.Shutdown(context.Background())
				if took := time.Since(began); took > tc.most || (err == nil) != tc.back {
					t.Errorf("%v after %v, %d units owed", err, took, owed)
				}
				if s := l.Stats(); (s.Dropped == 0) != tc.back || owed == 0 {
					t.Errorf("%d units dropped of %d", s.Dropped, owed)
				}
			})
		})
	}
}
