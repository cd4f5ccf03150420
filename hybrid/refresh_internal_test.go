package hybrid

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestVoidLimits checks that voidLimits makes the next call for each key ask LimitFor, of keys in memory and of a key that comes
// in meanwhile.
func TestVoidLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, asked atomic.Int64
		now.Store(1000)
		var l *Limiter
		voids := false
		l, err := New(redistest.NewBubble(t).Client(nil), hybridlimit.PerHour(10), Config{
			Name: "api", LimitRefresh: hybridlimit.Never, MaxWait: time.Second, Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)},
			LimitFor: func(string) hybridlimit.Limit {
				asked.Add(1)
				limit := hybridlimit.PerHour(now.Load())
				if voids {
					voids = false
					now.Add(1)
					l.control.VoidLimits()
				}
				return limit
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(2300 * time.Millisecond)
		limitOf := func(key string) int64 {
			t.Helper()
			res, err := l.Allow(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			return res.Limit
		}
		const keys = 300
		for round := range int64(3) {
			for range 5 {
				for k := range keys {
					if got := limitOf(fmt.Sprint("k", k)); got != 1000+round {
						t.Fatalf("round %d: limit %d", round, got)
					}
				}
			}
			if n := asked.Swap(0); n != keys {
				t.Errorf("round %d: LimitFor was asked %d times for %d keys", round, n, keys)
			}
			now.Add(1)
			l.control.VoidLimits()
		}
		voids = true
		if got, want := limitOf("late"), now.Load()-1; got != want {
			t.Errorf("the call whose answer became void: limit %d, want %d", got, want)
		}
		if got, want := limitOf("late"), now.Load(); got != want {
			t.Errorf("the next call: limit %d, want %d", got, want)
		}
	})
}

// TestNoBudgetBesideAQuestion checks that an event of a key loads no budget while LimitFor must be asked, and none under a limit
// that counts nothing: a sync may be answered in between.
func TestNoBudgetBesideAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(redistest.NewBubble(t).Client(nil), hybridlimit.PerSecond(100_000), Config{
			Name: "api", MaxWait: time.Second, Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)},
			LimitFor: func(string) hybridlimit.Limit { return hybridlimit.PerSecond(200_000) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(2300 * time.Millisecond)
		for range 200 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
		e := l.terms.Store.Get("k")
		loads := func() bool {
			e.Lock()
			ev := e.Event()
			ev.End(account.Verdict{})
			return e.Word.Load() != 0
		}
		was := e.Asks
		for _, c := range []struct {
			name  string
			asks  refresh.Deadline
			loads bool
		}{{"asked", was, true}, {"to be asked", was.Void(), false}, {"blocked", was.With(keys.StandsBlocked), false}, {"unlimited", was.With(keys.StandsUnlimited), false}} {
			if e.Asks = c.asks; loads() != c.loads {
				t.Errorf("%s: an event loads a budget: %v, want %v", c.name, !c.loads, c.loads)
			}
		}
		e.Asks = was
	})
}
