package hybrid

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
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
					l.voidLimits()
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
			l.voidLimits()
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
