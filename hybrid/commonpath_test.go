package hybrid

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestCommonPathAllocatesNothing checks that no decision of the fast path
// allocates. In a bubble time stands still meanwhile: no epoch passes, and no
// other goroutine allocates. So the count is exact on any machine.
func TestCommonPathAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		hub, err := NewHub(b.Client(nil), HubConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		open := func(name string, limit hybridlimit.Limit) *Limiter {
			l, err := hub.Limiter(limit, Config{Name: name, SyncEvery: 100_000}) // above the units of a case: a sync allocates
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		ctx := context.Background()
		far := open("far", hybridlimit.PerSecond(1_000_000_000))
		shut := open("shut", hybridlimit.PerHour(1))
		shadow, err := hub.Limiter(hybridlimit.PerHour(1), Config{Name: "shadow", Shadow: true})
		if err != nil {
			t.Fatal(err)
		}
		window := open("window", hybridlimit.FixedWindow(1_000_000_000, time.Hour))
		inBerlin := hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin"}
		month := open("month", hybridlimit.CalendarWindow(1_000_000_000, inBerlin))
		time.Sleep(2 * time.Second) // N is known
		farKey, shutKey := far.Handle("k"), shut.Handle("k")
		for name, tc := range map[string]struct {
			allowed bool
			call    func() (hybridlimit.Result, error)
		}{
			"Allow":          {true, func() (hybridlimit.Result, error) { return far.Allow(ctx, "k") }},
			"AllowN":         {true, func() (hybridlimit.Result, error) { return far.AllowN(ctx, "k", 3) }},
			"Allow, denied":  {false, func() (hybridlimit.Result, error) { return shut.Allow(ctx, "k") }},
			"Allow, shadow":  {true, func() (hybridlimit.Result, error) { return shadow.Allow(ctx, "k") }},
			"Allow, window":  {true, func() (hybridlimit.Result, error) { return window.Allow(ctx, "k") }},
			"Allow, month":   {true, func() (hybridlimit.Result, error) { return month.Allow(ctx, "k") }},
			"Bucket.Allow":   {true, func() (hybridlimit.Result, error) { return farKey.Allow(ctx) }},
			"Bucket.AllowN":  {true, func() (hybridlimit.Result, error) { return farKey.AllowN(ctx, 3) }},
			"Bucket, denied": {false, func() (hybridlimit.Result, error) { return shutKey.Allow(ctx) }},
		} {
			for range 10 { // until there is a lease, and the budget is of this epoch
				time.Sleep(time.Millisecond + time.Microsecond) // so that no tick is due
				synctest.Wait()
				if _, err := tc.call(); err != nil {
					t.Fatal(err)
				}
			}
			epoch := hub.clock.Epoch()
			var last hybridlimit.Result
			n := testing.AllocsPerRun(1000, func() { last, _ = tc.call() })
			if n != 0 {
				t.Errorf("%s allocates %v times", name, n)
			}
			if last.Allowed != tc.allowed {
				t.Errorf("%s: %+v", name, last)
			}
			if hub.clock.Epoch() != epoch {
				t.Errorf("%s: an epoch has passed", name)
			}
			switch last.Source {
			case hybridlimit.SourceLease, hybridlimit.SourceCredit, hybridlimit.SourceDenyCache:
			default:
				t.Errorf("%s is not the fast path: %+v", name, last)
			}
		}
	})
}
