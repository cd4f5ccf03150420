package notice_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
	"github.com/hybridlimit/hybridlimit/spend"
)

// TestWhenLooksCome has the times of the looks after one call, for each kind of answer.
func TestWhenLooksCome(t *testing.T) {
	errNone := errors.New("no answer")
	for _, tc := range []struct {
		name   string
		source hybridlimit.Source
		err    error
		want   []int // seconds
	}{
		{"exact", hybridlimit.SourceLocal, nil, []int{2}},
		{"asked Redis", hybridlimit.SourceRedis, nil, []int{2}},
		{"an estimate", hybridlimit.SourceLease, nil, []int{2, 4, 8}},
		{"denied from memory", hybridlimit.SourceDenyCache, nil, []int{2, 4, 8}},
		{"a switch", hybridlimit.SourceSwitch, nil, []int{2}},
		{"unlimited now", hybridlimit.SourceStatic, nil, []int{2}},
		{"closed", hybridlimit.SourceUnknown, hybridlimit.ErrClosed, []int{2}},
		{"an error", hybridlimit.SourceUnknown, errNone, []int{2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960}},
		{"the fallback", hybridlimit.SourceFallback, nil, []int{2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // guards at
				var at []int
				border(time.Hour)
				began := time.Now()
				l := &fake{Limiter: newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})}
				l.peek = func(ctx context.Context, _ string) (hybridlimit.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, int(time.Since(began).Seconds()))
					if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 100*time.Millisecond {
						t.Error("a look has no bound")
					}
					return hybridlimit.Result{Limit: 10, Remaining: 9, Source: tc.source}, tc.err
				}
				ask(t, watch(t, l, notice.Config{On: func(notice.Crossing) {}}), "ann", 1)
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(at, tc.want) {
					t.Errorf("looks after %v seconds, want %v", at, tc.want)
				}
			})
		})
	}
}

// TestLooksShareATick has 100 keys whose looks take 50 ms each. They take a tenth of the time, and all come.
func TestLooksShareATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards took and looked
		var took time.Duration
		looked := map[string]int{}
		l := &fake{Limiter: newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})}
		l.peek = func(ctx context.Context, key string) (hybridlimit.Result, error) {
			mu.Lock()
			took += 50 * time.Millisecond
			looked[key]++
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			return l.Limiter.Peek(ctx, key)
		}
		n := watch(t, l, notice.Config{On: func(notice.Crossing) {}})
		border(time.Hour)
		for i := range 100 {
			ask(t, n, strings.Repeat("k", i+1), 1)
		}
		time.Sleep(20 * time.Second)
		mu.Lock()
		if took > 2200*time.Millisecond || took < 1500*time.Millisecond {
			t.Errorf("the looks took %v of 20 seconds", took)
		}
		mu.Unlock()
		time.Sleep(60 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(looked) != 100 || took != 5*time.Second {
			t.Errorf("%d keys were looked at, in %v", len(looked), took)
		}
	})
}

// TestUnitsOfOthers lets two processes use half of a window each, at the same time. No Result shows more than a half in
// ModeDeferred: the looks show it, after the syncs.
func TestUnitsOfOthers(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				var r told
				var both []*notice.Limiter
				for range 2 {
					l := newHybrid(t, b.Link(), hybridlimit.FixedWindow(1000, time.Hour), hybrid.Config{Mode: mode, MaxWait: time.Second})
					both = append(both, watch(t, l, notice.Config{At: []float64{0.9}, On: r.on}))
				}
				time.Sleep(5 * time.Second)
				for range 480 {
					for _, n := range both {
						ask(t, n, "ann", 1)
					}
				}
				synctest.Wait()
				if mode == hybrid.ModeDeferred && len(r.take()) != 0 {
					t.Error("told before a sync")
				}
				time.Sleep(10 * time.Second)
				if got := r.take(); len(got) < 1 || len(got) > 2 || got[0].Used < 900 || got[0].ID != got[len(got)-1].ID {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// TestAnOutage uses most of a window while Redis is away. The crossing is told when Redis is back, without a call.
func TestAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var r told
		var log testenv.Log
		l := newHybrid(t, b.Link(), hybridlimit.FixedWindow(100, time.Hour), hybrid.Config{})
		n := watch(t, l, notice.Config{On: r.on, Logger: logTo(&log)})
		time.Sleep(5 * time.Second)
		ask(t, n, "ann", 1)
		b.Kill()
		time.Sleep(5 * time.Second)
		for range 90 {
			if res := ask(t, n, "ann", 1); res.Source != hybridlimit.SourceFallback {
				t.Fatal(res)
			}
		}
		time.Sleep(time.Minute)
		if got := r.take(); len(got) != 0 {
			t.Errorf("told by the fallback: %+v", got)
		}
		if !strings.Contains(log.String(), "had no answer") || strings.Contains(log.String(), "ann") {
			t.Errorf("the log: %s", log.String())
		}
		b.Restart()
		time.Sleep(3 * time.Minute)
		if got := r.take(); !slices.Equal(ats(got), []float64{0.8}) || got[0].Used < 80 {
			t.Errorf("after the outage: %+v", got)
		}
	})
}

// TestAPause denies a key for a time. Its units count when the pause is over.
func TestAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		l := newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})
		n := watch(t, l, notice.Config{At: []float64{0.8}, On: r.on})
		border(time.Hour)
		ask(t, n, "ann", 1)
		if _, err := l.Charge(t.Context(), "ann", 8); err != nil {
			t.Fatal(err)
		}
		if err := spend.Pause(t.Context(), n, "ann", time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			ask(t, n, "ann", 1)
			time.Sleep(5 * time.Second)
		}
		if got := r.take(); len(got) != 0 {
			t.Errorf("in the pause: %+v", got)
		}
		time.Sleep(2 * time.Minute)
		if got := r.take(); len(got) != 1 {
			t.Errorf("after the pause: %+v", got)
		}
	})
}

// TestSwitches has no crossing while a switch decides, and those of a limit in shadow.
func TestSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var r told
		l := newHybrid(t, b.Link(), hybridlimit.FixedWindow(10, time.Hour), hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: time.Second})
		n := watch(t, l, notice.Config{At: []float64{1}, On: r.on})
		time.Sleep(5 * time.Second)
		for s, want := range map[hybrid.Switch]int{hybrid.SwitchAllowAll: 0, hybrid.SwitchDenyAll: 0, hybrid.SwitchShadow: 1} {
			if err := l.SetSwitch(s); err != nil {
				t.Fatal(err)
			}
			for range 15 {
				if res := ask(t, n, s.String(), 1); res.Allowed == (s == hybrid.SwitchDenyAll) {
					t.Errorf("%v: %+v", s, res)
				}
			}
			time.Sleep(10 * time.Second)
			if got := r.take(); len(got) != want {
				t.Errorf("%v: %+v", s, got)
			}
		}
	})
}

// TestClassesOfAFleet drains a class in one process, and the rest in another. The first one tells both.
func TestClassesOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		limit, cfg := hybridlimit.FixedWindow(100, time.Hour), hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: time.Second, Classes: []hybrid.Class{{Name: "batch", Floor: 0.4}}}
		l, other := newHybrid(t, b.Link(), limit, cfg), newHybrid(t, b.Link(), limit, cfg)
		var r told
		n := watch(t, l, notice.Config{At: []float64{0.6, 1}, On: r.on}).ForClass("batch")
		time.Sleep(5 * time.Second)
		for range 70 {
			ask(t, n, "ann", 1)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if got := r.take(); !slices.Equal(ats(got), []float64{0.6}) || got[0].Limit != 100 {
			t.Errorf("60 units of the class: %+v", got)
		}
		for range 45 {
			ask(t, other, "ann", 1)
			time.Sleep(10 * time.Millisecond)
		}
		ask(t, n, "ann", 1)
		time.Sleep(10 * time.Second)
		if got := r.take(); !slices.Equal(ats(got), []float64{1}) || got[0].Used != 100 {
			t.Errorf("all units: %+v", got)
		}
	})
}

// TestCalendarOfAFleet has the windows of a day in Berlin, and those of a minute from the first use, in two processes.
// Both tell one crossing of each window, with one id.
func TestCalendarOfAFleet(t *testing.T) {
	day := hybridlimit.CalendarWindow(40, hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "Europe/Berlin"})
	for _, limit := range []hybridlimit.Limit{day, hybridlimit.WindowFromUse(40, time.Minute)} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeExact} {
			t.Run(limit.String()+"/"+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(22*time.Hour + 59*time.Minute + 25*time.Second) // 00:00 in Berlin is 23:00 UTC
					b := redistest.NewBubble(t)
					var members [2]*member
					for i := range members {
						m := &member{}
						m.watched = watch(t, newHybrid(t, b.Link(), limit, hybrid.Config{Mode: mode, MaxWait: time.Second}), notice.Config{At: []float64{1}, On: m.on})
						members[i] = m
					}
					time.Sleep(5 * time.Second)
					for round := range 3 {
						began := time.Now().UTC()
						for range 50 {
							for _, m := range members {
								ask(t, m.watched, "ann", 1)
							}
							time.Sleep(50 * time.Millisecond)
						}
						time.Sleep(5 * time.Second)
						first, second := members[0].take(), members[1].take()
						if round == 1 && limit == day { // of the same day as the round before
							if len(first)+len(second) != 0 {
								t.Errorf("round %d: told again: %+v, %+v", round, first, second)
							}
						} else if len(first) != 1 || len(second) != 1 || first[0].ID != second[0].ID || began.Before(first[0].Begin.Add(-time.Second)) || !began.Before(first[0].End) {
							t.Errorf("round %d at %v: %+v, %+v", round, began, first, second)
						}
						if limit == day {
							time.Sleep(2500 * time.Millisecond) // the third round is after midnight
							if round == 1 {
								time.Sleep(10 * time.Second)
							}
							continue
						}
						time.Sleep(time.Minute)
					}
				})
			})
		}
	}
}
