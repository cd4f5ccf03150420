package notice_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

func logTo(l *testenv.Log) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestASlowOn lets On wait for a minute. Calls do not wait, and crossings wait until it returns.
func TestASlowOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		n := watch(t, newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{}), notice.Config{At: []float64{1}, On: func(c notice.Crossing) {
			if c.Key == "key-0" {
				time.Sleep(time.Minute)
			}
			r.on(c)
		}})
		border(time.Hour)
		began := time.Now()
		for i := range 100 {
			ask(t, n, fmt.Sprint("key-", i), 10)
		}
		synctest.Wait()
		if time.Since(began) != 0 || n.Stats().Waiting != 99 || n.Stats().Told != 1 {
			t.Errorf("calls waited %v: %+v", time.Since(began), n.Stats())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.take(); len(got) != 100 {
			t.Errorf("%d crossings", len(got))
		}
	})
}

// TestMoreThanCanWait has 3000 crossings while On hangs. In the window of the calls all are told, some by the looks. If
// the window is over before, the others are lost, and counted.
func TestMoreThanCanWait(t *testing.T) {
	const keys = 1500
	for _, hangs := range []time.Duration{time.Minute, 2 * time.Hour} {
		t.Run(hangs.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r told
				var log testenv.Log
				first := true
				n := watch(t, newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{}), notice.Config{Logger: logTo(&log), On: func(c notice.Crossing) {
					if first {
						first = false
						time.Sleep(hangs)
					}
					r.on(c)
				}})
				border(time.Hour)
				for i := range keys {
					ask(t, n, fmt.Sprint("key-", i), 10)
				}
				time.Sleep(hangs + time.Minute)
				times := map[string]int{}
				for _, c := range r.take() {
					if times[c.ID]++; times[c.ID] > 1 {
						t.Errorf("told twice: %+v", c)
					}
				}
				s := n.Stats()
				if hangs < time.Hour && (len(times) != 2*keys || s.Lost != 0) {
					t.Errorf("%d crossings were told, want %d: %+v", len(times), 2*keys, s)
				}
				if hangs > time.Hour && (len(times) < 1024 || len(times) > 1025 || s.Lost+s.Told != 2*keys) {
					t.Errorf("%d crossings were told, want those that waited, and the others lost: %+v", len(times), s)
				}
				if lost := strings.Contains(log.String(), "a crossing is not told"); lost != (s.Lost > 0) {
					t.Errorf("%s", log.String())
				}
			})
		})
	}
}

// TestAllAreCounted closes while On hangs and looks are slow, with room for all keys or for one. Each crossing is told or
// counted as lost.
func TestAllAreCounted(t *testing.T) {
	const keys = 1500
	for _, most := range []int{1, keys} {
		t.Run(fmt.Sprint("room for ", most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r told
				l := &fake{Limiter: newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})}
				l.peek = func(ctx context.Context, _ string) (hybridlimit.Result, error) {
					<-ctx.Done()
					return hybridlimit.Result{}, ctx.Err()
				}
				n, err := notice.New(l, notice.Config{MaxKeys: most, Logger: quiet, On: func(c notice.Crossing) {
					if r.on(c); c.Key == "key-0" {
						time.Sleep(10 * time.Second)
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				border(time.Hour)
				for i := range keys {
					ask(t, n, fmt.Sprint("key-", i), 10)
				}
				if err := n.Close(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Close: %v", err)
				}
				if s := n.Stats(); s.Told+s.Lost != 2*keys || s.Lost == 0 || uint64(len(r.take())) != s.Told {
					t.Errorf("of %d crossings: %+v", 2*keys, s)
				}
			})
		})
	}
}

// TestOnPanics lets On panic for one crossing. It is logged and counted, and the next ones are told.
func TestOnPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		var log testenv.Log
		n := watch(t, newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{}), notice.Config{Logger: logTo(&log), On: func(c notice.Crossing) {
			r.on(c)
			if c.At == 0.8 {
				panic("no database")
			}
		}})
		border(time.Hour)
		for range 12 {
			ask(t, n, "ann", 1)
		}
		time.Sleep(10 * time.Second)
		if got := r.take(); len(got) != 2 || n.Stats().Panics != 1 || n.Stats().Told != 2 {
			t.Errorf("%+v, %+v", got, n.Stats())
		}
		text := log.String()
		for _, want := range []string{"Config.On panicked", "no database", "limiter=api", "on_test.go"} {
			if !strings.Contains(text, want) {
				t.Errorf("the log lacks %q: %s", want, text)
			}
		}
		if strings.Contains(text, "ann") {
			t.Errorf("the log has the key: %s", text)
		}
	})
}

// TestOnExits lets On end its goroutine, as t.FailNow does. Close says so, and calls are decided as before.
func TestOnExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := notice.New(newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{}), notice.Config{Logger: quiet, On: func(notice.Crossing) { runtime.Goexit() }})
		if err != nil {
			t.Fatal(err)
		}
		border(time.Hour)
		ask(t, n, "ann", 8)
		synctest.Wait()
		if res := ask(t, n, "ann", 2); !res.Allowed || res.Remaining != 0 {
			t.Errorf("%+v", res)
		}
		if err := n.Close(); err == nil || !strings.Contains(err.Error(), "has ended its goroutine") {
			t.Errorf("Close: %v", err)
		}
	})
}

// TestLimitForPanics lets LimitFor panic in a look. The look is repeated.
func TestLimitForPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		var log testenv.Log
		var panics atomic.Bool
		l := newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})
		n := watch(t, &fake{Limiter: l, onPeek: func() {
			if panics.Load() {
				panic("no plan")
			}
		}}, notice.Config{Logger: logTo(&log), On: r.on})
		border(time.Hour)
		ask(t, n, "ann", 1)
		if _, err := l.Charge(t.Context(), "ann", 8); err != nil {
			t.Fatal(err)
		}
		panics.Store(true)
		time.Sleep(30 * time.Second)
		panics.Store(false)
		time.Sleep(time.Minute)
		if got := r.take(); len(got) != 1 || got[0].Used != 9 {
			t.Errorf("%+v", got)
		}
		if s := n.Stats(); s.Failed == 0 || s.Panics != 0 || !strings.Contains(log.String(), "no plan") {
			t.Errorf("%+v: %s", s, log.String())
		}
	})
}

// TestAKeyWithoutWindows gives a key a bucket, as only a limiter of one's own can.
func TestAKeyWithoutWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		var log testenv.Log
		l := &fake{Limiter: newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})}
		l.policy = func(key string) hybridlimit.Policy {
			if key == "bucket" {
				return hybridlimit.Policy{Limit: hybridlimit.PerHour(10)}
			}
			return l.Limiter.Policy(key)
		}
		n := watch(t, l, notice.Config{Logger: logTo(&log), On: r.on})
		border(time.Hour)
		for range 10 {
			ask(t, n, "bucket", 1)
			ask(t, n, "ann", 1)
		}
		synctest.Wait()
		if got := r.take(); len(got) != 2 || got[0].Key != "ann" {
			t.Errorf("%+v", got)
		}
		if s, text := n.Stats(), log.String(); s.Unwatched != 3 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "has no windows") || !strings.Contains(text, "token bucket") {
			t.Errorf("%+v: %s", s, text)
		}
	})
}
