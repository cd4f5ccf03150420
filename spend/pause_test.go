package spend_test

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
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/spend"
)

// admits asks each limiter for a unit every 10 ms, for a time. It returns when the last unit was admitted, since the
// start; below 0: none was.
func admits(t *testing.T, ls []*hybrid.Limiter, d time.Duration) (last, first time.Duration) {
	t.Helper()
	last, first = -1, -1
	for start := time.Now(); time.Since(start) < d; time.Sleep(10 * time.Millisecond) {
		for _, l := range ls {
			res, err := l.Allow(t.Context(), "k")
			switch {
			case err != nil:
				t.Fatal(err)
			case res.Allowed:
				if last = time.Since(start); first < 0 {
					first = last
				}
			case res.Source == hybridlimit.SourcePause && (res.RetryAfter <= 0 || res.RetryAfter > 10*time.Second || res.Limit != 1000):
				t.Errorf("%+v", res)
			}
		}
	}
	return last, first
}

// TestAPauseReachesTheFleet pauses a key in one of six busy processes, with each algorithm and mode. The last unit is
// admitted within 1.1 s. After the pause, all admit again. A key that is not paused is not affected.
func TestAPauseReachesTheFleet(t *testing.T) {
	for of, limit := range map[string]hybridlimit.Limit{
		"token bucket": hybridlimit.PerSecond(1000), "leaky queue": hybridlimit.LeakyQueue(1000, time.Second, 1000),
		"fixed window": hybridlimit.FixedWindow(1000, time.Second), "sliding window": hybridlimit.SlidingWindow(1000, time.Second),
		"sliding log": hybridlimit.SlidingLog(1000, time.Second),
	} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
			t.Run(of+" "+mode.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ls := fleet(t, redistest.NewBubble(t), 6, limit, hybrid.Config{Mode: mode})
					if last, _ := admits(t, ls, time.Second); last < 900*time.Millisecond {
						t.Fatalf("before the pause, the last unit after %v", last)
					}
					if err := spend.Pause(t.Context(), ls[0], "k", time.Now().Add(5*time.Second)); err != nil {
						t.Fatal(err)
					}
					if res, err := ls[0].Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != hybridlimit.SourcePause || res.RetryAfter != 5*time.Second {
						t.Errorf("in the process itself: %+v, %v", res, err)
					}
					last, _ := admits(t, ls, 4*time.Second)
					if last > 1100*time.Millisecond {
						t.Errorf("the last unit %v after the pause", last)
					}
					if res, err := ls[3].Allow(t.Context(), "other"); err != nil || !res.Allowed {
						t.Errorf("another key: %+v, %v", res, err)
					}
					if _, first := admits(t, ls, 2*time.Second); first < 900*time.Millisecond || first > 1100*time.Millisecond {
						t.Errorf("the first unit %v after the pause began", 4*time.Second+first)
					}
				})
			})
		}
	}
}

// TestPausesSurvive pauses a key while Redis is away, and wipes Redis meanwhile. A pause that is known holds, and
// reaches the others afterwards.
func TestPausesSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		ls := fleet(t, b, 3, hybridlimit.PerSecond(1000), hybrid.Config{})
		b.Kill()
		time.Sleep(time.Second)
		if err := spend.Pause(t.Context(), ls[0], "k", time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, 2 * time.Second} {
			time.Sleep(wait)
			if res, err := ls[0].Allow(t.Context(), "k"); err != nil || res.Allowed {
				t.Errorf("in the outage: %+v, %v", res, err)
			}
		}
		for range 2 { // the second time Redis loses what the processes have told
			b.Restart()
			time.Sleep(6 * time.Second)
			for i, l := range ls {
				if res, err := l.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != hybridlimit.SourcePause {
					t.Errorf("process %d, after the outage: %+v, %v", i, res, err)
				}
			}
		}
		late := fleet(t, b, 1, hybridlimit.PerSecond(1000), hybrid.Config{})[0]
		if res, err := late.Allow(t.Context(), "k"); err != nil || res.Allowed {
			t.Errorf("a new process: %+v, %v", res, err)
		}
	})
}

// TestPausesOfOneProcess asks all verbs of local and hybrid about a key that is paused.
func TestPausesOfOneProcess(t *testing.T) {
	type limiter interface {
		hybridlimit.Limiter
		AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
		Peek(ctx context.Context, key string) (hybridlimit.Result, error)
		Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error)
		Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
		Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	}
	for name, make := range map[string]func(*testing.T) limiter{
		"local": func(t *testing.T) limiter { return inLocal(t, hybridlimit.PerHour(100), local.Config{}) },
		"hybrid": func(t *testing.T) limiter {
			return fleet(t, redistest.NewBubble(t), 1, hybridlimit.PerHour(100), hybrid.Config{})[0]
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := make(t)
			if err := spend.Pause(t.Context(), l, "k", time.Now().Add(2*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := spend.Pause(t.Context(), l, "k", time.Now().Add(time.Second)); err != nil { // the longer one counts
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
			paused := func(what string, res hybridlimit.Result, err error) {
				if err != nil || res.Allowed || res.Source != hybridlimit.SourcePause || res.RetryAfter != 500*time.Millisecond {
					t.Errorf("%s: %s: %+v, %v", name, what, res, err)
				}
			}
			res, err := l.Allow(t.Context(), "k")
			paused("Allow", res, err)
			if h, ok := l.(*hybrid.Limiter); ok {
				const want = "denied until 00:00:06.137 UTC because the key is paused, by package spend or as a penalty"
				if i, err := h.Inspect(t.Context(), "k"); err != nil || i.Sentence != want || !i.DenyUntil.Equal(time.Now().Add(500*time.Millisecond)) {
					t.Errorf("Inspect: %q, %v", i.Sentence, err)
				}
			}
			res, err = l.Peek(t.Context(), "k")
			paused("Peek", res, err)
			res, err = l.AllowAtMost(t.Context(), "k", 5)
			paused("AllowAtMost", res, err)
			asks := []hybridlimit.Ask{{Limiter: l, Key: "k", N: 1}, {Limiter: l, Key: "free", N: 1}}
			res, err = hybridlimit.AllowAll(t.Context(), asks...)
			paused("AllowAll", res, err)
			if r, err := l.Reserve(t.Context(), "k", 1); err != nil || r.Allowed {
				t.Errorf("%s: Reserve: %+v, %v", name, r, err)
			}
			if res, err := l.Charge(t.Context(), "k", 7); err != nil || !res.Allowed {
				t.Errorf("%s: Charge: %+v, %v", name, res, err)
			}
			began := time.Now()
			if res, err := l.Wait(t.Context(), "k", 1); err != nil || !res.Allowed || time.Since(began) < 500*time.Millisecond || time.Since(began) > 700*time.Millisecond {
				t.Errorf("%s: Wait took %v: %+v, %v", name, time.Since(began), res, err)
			}
			if res, err := l.Allow(t.Context(), "free"); err != nil || res.Remaining != 99 {
				t.Errorf("%s: another key: %+v, %v", name, res, err)
			}
		})
	}
}

func TestBadPauses(t *testing.T) {
	l := inLocal(t, hybridlimit.PerHour(100), local.Config{})
	for until, says := range map[time.Time]string{
		time.Now().Add(11 * time.Minute): "must be at most 10m0s from now",
		time.Now().Add(-time.Second):     "must be in the future",
		{}:                               "must be in the future",
		time.Unix(0, 0):                  "must be in the future",
		time.Now().Add(1<<63 - 1 - 10*24*time.Hour): "must be at most",
	} {
		if err := spend.Pause(t.Context(), l, "k", until); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", until, err)
		}
	}
	soon := time.Now().Add(time.Minute)
	if err := spend.Pause(t.Context(), nil, "k", soon); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
	if err := spend.Pause(t.Context(), plain{l}, "k", soon); !errors.Is(err, hybridlimit.ErrUnsupported) {
		t.Errorf("a limiter of a user: %v", err)
	}
	if err := spend.Pause(t.Context(), l, "", soon); !errors.Is(err, hybridlimit.ErrEmptyKey) {
		t.Errorf("an empty key: %v", err)
	}
	if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
		t.Errorf("after bad pauses: %+v, %v", res, err)
	}
	l.Close()
	if err := spend.Pause(t.Context(), l, "k", soon); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("a closed limiter: %v", err)
	}
}

// TestPausesOfLocalAreBounded pauses as many keys as one shard knows. A known pause can still become longer.
func TestPausesOfLocalAreBounded(t *testing.T) {
	l := inLocal(t, hybridlimit.PerHour(100), local.Config{MaxKeys: 1})
	soon, later := time.Now().Add(time.Minute), time.Now().Add(2*time.Minute)
	for i := range 4096 {
		if err := spend.Pause(t.Context(), l, fmt.Sprint(i), soon); err != nil {
			t.Fatal(err)
		}
	}
	if err := spend.Pause(t.Context(), l, "more", soon); err == nil || !strings.Contains(err.Error(), `"more" is not paused`) {
		t.Errorf("one more: %v", err)
	}
	if err := spend.Pause(t.Context(), l, "7", later); err != nil {
		t.Errorf("a longer pause: %v", err)
	}
	for key, pauses := range map[string]bool{"7": true, "8": true, "more": false} {
		res, err := l.Allow(t.Context(), key)
		if err != nil || res.Allowed == pauses || key == "7" && res.RetryAfter <= time.Minute {
			t.Errorf("%s: %+v, %v", key, res, err)
		}
	}
}

// TestPausedKeysAllocateNothing denies a paused key that is in use.
func TestPausedKeysAllocateNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fleet(t, redistest.NewBubble(t), 1, hybridlimit.PerSecond(1000), hybrid.Config{})[0]
		if err := spend.Pause(t.Context(), l, "k", time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got := testing.AllocsPerRun(1000, func() { l.Allow(t.Context(), "k") }); got != 0 {
			t.Errorf("%v allocations", got)
		}
	})
}
