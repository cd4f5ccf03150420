package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// together are limits of every algorithm that refill nothing in a test, of 100 units each.
var together = map[string]hybridlimit.Limit{
	"bucket": still(100), "leaky-bucket": hybridlimit.LeakyBucket(1, time.Hour, 100), "queue": hybridlimit.LeakyQueue(1, time.Hour, 100),
	"window": hybridlimit.FixedWindow(100, 24*time.Hour), "sliding-window": hybridlimit.SlidingWindow(100, 24*time.Hour),
	"day": hybridlimit.CalendarWindow(100, hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "America/New_York"}), "from-use": hybridlimit.WindowFromUse(100, 24*time.Hour),
	"log": hybridlimit.SlidingLog(100, time.Hour),
}

// TestAllAlgorithmsInOneHub checks that no limiter harms another one of its hub: whatever Redis does, no op is dropped, and
// Redis counts what was admitted.
func TestAllAlgorithmsInOneHub(t *testing.T) {
	t.Parallel()
	hang := func(lasts time.Duration) func(*redistest.MemLink) {
		return func(l *redistest.MemLink) {
			l.Pause()
			time.AfterFunc(lasts, l.Resume)
		}
	}
	for fault, begin := range map[string]func(*redistest.MemLink){
		"none": func(*redistest.MemLink) {}, "60 ms": hang(60 * time.Millisecond), "1 s": hang(time.Second), "4 s": hang(4 * time.Second),
		"away": func(l *redistest.MemLink) {
			l.Refuse(true)
			l.CutAll()
			time.AfterFunc(5*time.Second, func() { l.Refuse(false) })
		},
	} {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			t.Run(fmt.Sprint(fault, ", ", mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					link, rdb := b.Link(), b.Client(nil)
					h := newHub(t, link.Client(nil), hybrid.HubConfig{Tags: 1, FleetSize: 1})
					limiters := map[string]*hybrid.Limiter{}
					for name, limit := range together {
						limiters[name] = add(t, h, limit, hybrid.Config{Name: name, Mode: mode})
					}
					time.Sleep(2100 * time.Millisecond)
					for n := range 20 {
						if n == 5 {
							begin(link)
						}
						for _, l := range limiters {
							ask(t, l, "k", 1)
						}
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(15 * time.Second)
					if err := h.Shutdown(t.Context()); err != nil {
						t.Error(err)
					}
					if s := h.Stats(); s.Refused > 0 {
						t.Errorf("Redis refused %d ops", s.Refused)
					}
					for name, l := range limiters {
						s := l.Stats()
						there, err := global.New(rdb, together[name], global.Config{Name: name, Tags: 1})
						if err != nil {
							t.Fatal(err)
						}
						res, err := there.Peek(t.Context(), "k")
						// A call that gave up may have left units in Redis: they are counted as uncertain or lost.
						used := 100 - res.Remaining
						if least := balance(t, s); err != nil || s.Dropped > 0 || used < least-s.Forgiven || used > least+s.Uncertain+s.Lost+s.Expired {
							t.Errorf("%s: %d units are used in Redis, %d were admitted, %v: %+v", name, used, least, err, s)
						}
					}
				})
			})
		}
	}
}

// TestCallsThatHaveEnded checks that a call whose context has ended sends nothing, and that memory does not count it. A call
// that memory can decide at once is decided all the same.
func TestCallsThatHaveEnded(t *testing.T) {
	for name, limit := range together {
		inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
			l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
			time.Sleep(2300 * time.Millisecond)
			ask(t, l, "k", 1)
			time.Sleep(100 * time.Millisecond)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			var got int64
			said := func(res hybridlimit.Result, err error) {
				if got += res.Granted; err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%s, %v: %v", name, mode, err)
				}
			}
			for range 30 {
				if r, err := l.Reserve(ended, "k", 5); err != nil {
					said(hybridlimit.Result{}, err)
				} else {
					said(r.Result, nil)
				}
				said(l.Wait(ended, "k", 5))
				said(l.AllowN(ended, "k", 5))
			}
			for range 120 {
				got += ask(t, l, "k", 1).Granted
			}
			if s := l.Stats(); got != 99 || s.Uncertain > 0 {
				t.Errorf("%s, %v: %d of 99 units admitted: %+v", name, mode, got, s)
			}
		})
	}
}
