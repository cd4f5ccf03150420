package notice_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// TestEachThresholdOnce uses a fixed window unit by unit, in two windows.
func TestEachThresholdOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		l := newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})
		n := watch(t, l, notice.Config{At: []float64{1, 0.5, 0.75}, On: r.on})
		border(time.Hour)
		ids := map[string]bool{}
		for range 2 {
			begin := time.Now().UTC().Truncate(time.Hour)
			time.Sleep(10 * time.Minute)
			for used := int64(1); used <= 12; used++ {
				ask(t, n, "ann", 1)
				synctest.Wait()
				var want []float64
				switch used {
				case 5:
					want = []float64{0.5}
				case 8: // 7.5, rounded up
					want = []float64{0.75}
				case 10:
					want = []float64{1}
				}
				got := r.take()
				if !slices.Equal(ats(got), want) {
					t.Errorf("after %d units: %+v, want %v", used, got, want)
				}
				for _, c := range got {
					if c.Limiter != "api" || c.Key != "ann" || c.Used != used || c.Limit != 10 || c.Begin != begin || c.End != begin.Add(time.Hour) {
						t.Errorf("%+v", c)
					}
					if len(c.ID) != 32 || ids[c.ID] {
						t.Errorf("the id %q is not new", c.ID)
					}
					ids[c.ID] = true
				}
			}
			border(time.Hour)
		}
		if s := n.Stats(); s.Told != 6 || s.Lost+s.Evicted+s.Skipped+s.Failed+s.Panics+s.Unwatched != 0 || s.Keys != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestOneCallCrossesAll takes all units at once, and then asks for more than there are.
func TestOneCallCrossesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		n := watch(t, newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{}), notice.Config{On: r.on})
		border(time.Hour)
		ask(t, n, "ann", 10)
		synctest.Wait()
		if got := r.take(); !slices.Equal(ats(got), []float64{0.8, 1}) || got[0].Used != 10 || got[0].ID == got[1].ID {
			t.Errorf("%+v", got)
		}
		ask(t, n, "bob", 7)
		ask(t, n, "bob", 4)  // denied: 3 are left
		ask(t, n, "bob", 99) // denied for ever
		time.Sleep(time.Minute)
		if got := r.take(); len(got) != 0 {
			t.Errorf("denials that take nothing have crossed %+v", got)
		}
	})
}

// TestALimitOfOne crosses all thresholds with its only unit.
func TestALimitOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		n := watch(t, newLocal(t, hybridlimit.FixedWindow(1, time.Minute), local.Config{}), notice.Config{At: []float64{0.01, 0.5, 1}, On: r.on})
		for range 3 {
			border(time.Minute)
			ask(t, n, "ann", 1)
			ask(t, n, "ann", 1)
			time.Sleep(30 * time.Second)
			if got := r.take(); !slices.Equal(ats(got), []float64{0.01, 0.5, 1}) {
				t.Errorf("%+v", got)
			}
		}
	})
}

// TestCalendar uses months of Berlin, of which one is an hour shorter, and windows from the first use.
func TestCalendar(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var r told
		l := newLocal(t, hybridlimit.CalendarWindow(10, hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin"}), local.Config{})
		n := watch(t, l, notice.Config{On: r.on})
		for month := time.February; month <= time.May; month++ {
			begin, end := time.Date(2000, month, 1, 0, 0, 0, 0, berlin).UTC(), time.Date(2000, month+1, 1, 0, 0, 0, 0, berlin).UTC()
			for _, moment := range []time.Time{begin, end.Add(-time.Nanosecond)} {
				time.Sleep(time.Until(moment))
				key := moment.String()
				for range 12 {
					ask(t, n, key, 1)
				}
				synctest.Wait()
				if got := r.take(); !slices.Equal(ats(got), []float64{0.8, 1}) || got[0].Begin != begin || got[1].End != end {
					t.Errorf("at %v: %+v", moment, got)
				}
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var r told
		n := watch(t, newLocal(t, hybridlimit.WindowFromUse(10, time.Minute), local.Config{}), notice.Config{At: []float64{0.3, 1}, On: r.on})
		for range 5 {
			time.Sleep(2*time.Minute + 500*time.Millisecond)
			begin := time.Now().UTC()
			for range 20 { // some before the end of the half second at which it began, and some after
				ask(t, n, "ann", 1)
				time.Sleep(77 * time.Millisecond)
			}
			got := r.take()
			if !slices.Equal(ats(got), []float64{0.3, 1}) || got[0].Begin != got[1].Begin || got[0].Begin.Sub(begin).Abs() > 500*time.Millisecond {
				t.Errorf("from the first use at %v: %+v", begin, got)
			}
		}
	})
}

// TestBorders asks in the first and in the last moment of windows.
func TestBorders(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(4, time.Minute), hybridlimit.SlidingWindow(4, time.Minute)} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r told
				n := watch(t, newLocal(t, limit, local.Config{}), notice.Config{At: []float64{1}, On: r.on})
				border(time.Minute)
				begin := time.Now().UTC()
				ask(t, n, "first", 4)
				time.Sleep(time.Minute - time.Nanosecond)
				ask(t, n, "last", 4)
				time.Sleep(time.Nanosecond)
				ask(t, n, "next", 4)
				synctest.Wait()
				got := r.take()
				if len(got) != 3 || got[0].Begin != begin || got[1].Begin != begin || got[2].Begin != begin.Add(time.Minute) {
					t.Errorf("from %v: %+v", begin, got)
				}
			})
		})
	}
}

// TestTheClockOfRedis asks a Redis whose clock is ahead or behind by 20 seconds, near the border of a minute. The window
// is that of Redis.
func TestTheClockOfRedis(t *testing.T) {
	for _, off := range []time.Duration{20 * time.Second, -20 * time.Second} {
		for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(4, time.Minute), hybridlimit.SlidingWindow(4, time.Minute)} {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				l, err := global.New(b.Client(nil), limit, global.Config{Name: "api"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
				var r told
				n := watch(t, l, notice.Config{At: []float64{1}, On: r.on})
				border(time.Minute)
				time.Sleep(time.Minute - off/2) // 10 seconds before a border, or after it
				b.Mini.SetTime(time.Now().Add(off))
				ask(t, n, "ann", 4)
				synctest.Wait()
				if got, want := r.take(), time.Now().Add(off).UTC().Truncate(time.Minute); len(got) != 1 || got[0].Begin != want {
					t.Errorf("Redis is off by %v: %+v, want the window of %v", off, got, want)
				}
			})
		}
	}
}

// TestDebt charges more than a window has: its ResetAfter names a later border.
func TestDebt(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(10, time.Minute), hybridlimit.SlidingWindow(10, time.Minute)} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r told
				l := newLocal(t, limit, local.Config{})
				n := watch(t, l, notice.Config{On: r.on})
				border(time.Minute)
				begin := time.Now().UTC()
				time.Sleep(10 * time.Second)
				ask(t, n, "ann", 1)
				if _, err := l.Charge(t.Context(), "ann", 18); err != nil { // past this Limiter
					t.Fatal(err)
				}
				for range 5 {
					ask(t, n, "ann", 1)
					time.Sleep(5 * time.Second)
				}
				got := r.take()
				if !slices.Equal(ats(got), []float64{0.8, 1}) || got[0].Begin != begin || got[1].Begin != begin {
					t.Errorf("%+v, want both in the window of %v", got, begin)
				}
				border(time.Minute)
				time.Sleep(time.Second)
				ask(t, n, "ann", 1) // 9 units of debt, or most of the estimate
				synctest.Wait()
				got = r.take()
				if len(got) == 0 || got[0].Begin != begin.Add(time.Minute) {
					t.Errorf("in the next window: %+v", got)
				}
			})
		})
	}
}

// TestALookAfterTheLastCall charges a key past the Limiter. The look after its last call sees that.
func TestALookAfterTheLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		l := newLocal(t, hybridlimit.FixedWindow(100, time.Hour), local.Config{})
		n := watch(t, l, notice.Config{On: r.on})
		border(time.Hour)
		ask(t, n, "ann", 1)
		if _, err := l.Charge(t.Context(), "ann", 84); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second - 1)
		if got := r.take(); len(got) != 0 {
			t.Errorf("at once: %+v", got)
		}
		time.Sleep(time.Second + 1)
		synctest.Wait()
		if got := r.take(); !slices.Equal(ats(got), []float64{0.8}) || got[0].Used != 85 {
			t.Errorf("after 2 s: %+v", got)
		}
	})
}

// TestClasses drains a class, and then the limit. The thresholds are of the whole limit, whichever class is asked.
func TestClasses(t *testing.T) {
	for _, wraps := range []string{"limiter", "class"} {
		t.Run("the wrapped one is the "+wraps, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r told
				l := newLocal(t, hybridlimit.FixedWindow(100, time.Hour), local.Config{Classes: []local.Class{{Name: "batch", Floor: 0.4}, {Name: "normal", Floor: 0.1}}})
				of := l
				if wraps == "class" {
					var err error
					if of, err = l.Class("normal"); err != nil {
						t.Fatal(err)
					}
				}
				n := watch(t, of, notice.Config{At: []float64{0.5, 0.6, 0.7, 0.95}, On: r.on})
				batch, critical := n.ForClass("batch").(*notice.Limiter), n.ForClass(hybridlimit.ClassCritical)
				if batch != n.ForClass("batch") || batch != n.ForClass("unknown") || batch.ForClass("critical") != critical || batch.Policy("k").Limit.Rate != 60 {
					t.Error("the views of the classes are wrong")
				}
				border(time.Hour)
				ask(t, batch, "ann", 60)
				for range 4 { // in use without a pause
					ask(t, batch, "ann", 1)
					time.Sleep(900 * time.Millisecond)
				}
				if got := r.take(); !slices.Equal(ats(got), []float64{0.5, 0.6}) || got[0].Limit != 100 {
					t.Errorf("60 units of the class: %+v", got)
				}
				if res := ask(t, l, "ann", 15); !res.Allowed { // past the Limiter
					t.Fatal(res)
				}
				for range 4 {
					ask(t, batch, "ann", 1)
					time.Sleep(900 * time.Millisecond)
				}
				if got := r.take(); !slices.Equal(ats(got), []float64{0.7}) || got[0].Used != 75 {
					t.Errorf("60 and 15 units: %+v", got)
				}
				ask(t, critical, "ann", 25)
				synctest.Wait()
				if got := r.take(); !slices.Equal(ats(got), []float64{0.95}) || got[0].Used != 100 {
					t.Errorf("all: %+v", got)
				}
			})
		})
	}
}

// TestLimitFor gives keys limits of their own, and changes one.
func TestLimitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		limits := map[string]hybridlimit.Limit{
			"small": hybridlimit.FixedWindow(10, time.Hour), "none": hybridlimit.Blocked(), "all": hybridlimit.Unlimited(),
			"day": hybridlimit.FixedWindow(10, 24*time.Hour),
		}
		var mu sync.Mutex // guards limits
		l := newLocal(t, hybridlimit.FixedWindow(1000, time.Hour), local.Config{LimitFor: func(key string) hybridlimit.Limit {
			mu.Lock()
			defer mu.Unlock()
			if limit, ok := limits[key[:len(key)-2]]; ok { // it panics for the empty key
				return limit
			}
			return hybridlimit.FixedWindow(1000, time.Hour)
		}})
		n := watch(t, l, notice.Config{On: r.on})
		border(24 * time.Hour)
		for _, key := range []string{"small/1", "none/1", "all/1", "day/1", "big/1"} {
			for range 12 {
				ask(t, n, key, 1)
			}
		}
		time.Sleep(10 * time.Second)
		want := map[string]int{"small/1": 2, "day/1": 2}
		for _, c := range r.take() {
			if want[c.Key]--; c.Limit != 10 || c.End.Sub(c.Begin) != limits[c.Key[:len(c.Key)-2]].Period {
				t.Errorf("%+v", c)
			}
		}
		for key, left := range want {
			if left != 0 {
				t.Errorf("%q: %d crossings are missing", key, left)
			}
		}
		mu.Lock()
		limits["small"] = hybridlimit.FixedWindow(100, time.Hour)
		mu.Unlock()
		if err := l.InvalidateAll(); err != nil {
			t.Fatal(err)
		}
		for range 80 {
			ask(t, n, "small/1", 1)
		}
		time.Sleep(10 * time.Second)
		if got := r.take(); len(got) != 0 {
			t.Errorf("told again after the limit was raised: %+v", got)
		}
		border(time.Hour)
		for range 85 {
			ask(t, n, "small/1", 1)
		}
		synctest.Wait()
		if got := r.take(); !slices.Equal(ats(got), []float64{0.8}) || got[0].Used != 80 || got[0].Limit != 100 {
			t.Errorf("under the new limit: %+v", got)
		}
	})
}

// TestAShorterPeriod changes the length of the windows. Those after the change are told.
func TestAShorterPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		l := newLocal(t, hybridlimit.FixedWindow(10, time.Minute), local.Config{})
		n := watch(t, l, notice.Config{At: []float64{1}, On: r.on})
		for i, period := range []time.Duration{time.Minute, 24 * time.Hour, time.Hour, 10 * time.Second, 20 * time.Second, 5 * time.Second} {
			if err := l.SetLimit(hybridlimit.FixedWindow(10, period)); err != nil {
				t.Fatal(err)
			}
			if i < 4 {
				border(24 * time.Hour)
			} else {
				time.Sleep(5 * time.Second)
			}
			for range 3 {
				r.take()
				border(period)
				begin := time.Now().UTC()
				ask(t, n, "ann", 10)
				synctest.Wait()
				if got := r.take(); len(got) != 1 || got[0].Begin != begin || got[0].End != begin.Add(period) {
					t.Errorf("a window of %v at %v: %+v", period, begin, got)
				}
			}
		}
	})
}

// TestEvictedKeysMayBeToldAgain holds two keys with room for one.
func TestEvictedKeysMayBeToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		n := watch(t, newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{}), notice.Config{At: []float64{1}, MaxKeys: 1, On: r.on})
		border(time.Hour)
		seen := map[string]int{}
		for range 2 {
			for i := range 5 {
				ask(t, n, fmt.Sprint("key", i), 10)
			}
			time.Sleep(5 * time.Second)
			for _, c := range r.take() {
				seen[c.ID]++
			}
		}
		if len(seen) != 5 {
			t.Errorf("%d crossings, want 5: %v", len(seen), seen)
		}
		for id, times := range seen {
			if times > 2 {
				t.Errorf("%s was told %d times", id, times)
			}
		}
		if s := n.Stats(); s.Keys != 1 || s.Evicted == 0 || s.Skipped == 0 {
			t.Errorf("%+v", s)
		}
	})
}
