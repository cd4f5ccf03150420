package notice_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// TestConcurrentCalls calls many keys from many goroutines, also together, and reads the counts. Each threshold is told
// once for each key.
func TestConcurrentCalls(t *testing.T) {
	const goroutines, keys, rate = 8, 50, 100
	var r told
	limit := hybridlimit.FixedWindow(rate, testenv.OpenWindow(time.Now(), rate, time.Hour))
	classes := []local.Class{{Name: "batch", Floor: 0.2}}
	n := watch(t, newLocal(t, limit, local.Config{Classes: classes}), notice.Config{At: []float64{0.25, 0.5, 1}, On: r.on})
	other := watch(t, newLocal(t, limit, local.Config{Name: "other"}), notice.Config{At: []float64{0.5}, On: r.on})
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range keys * rate / goroutines * 2 {
				key := fmt.Sprint("key-", (i+g)%keys)
				switch i % 3 {
				case 0:
					ask(t, n, key, 1)
				case 1:
					ask(t, n.ForClass("batch"), key, 1)
				default:
					if _, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: other, Key: key, N: 1}, hybridlimit.Ask{Limiter: n, Key: key, N: 1}); err != nil {
						t.Error(err)
					}
				}
				if i%100 == 0 {
					n.Stats()
				}
			}
		})
	}
	all.Wait()
	for _, l := range []*notice.Limiter{n, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if s := l.Stats(); s.Lost+s.Evicted+s.Skipped+s.Failed+s.Panics+s.Unwatched != 0 || s.Keys != keys {
			t.Errorf("%+v", s)
		}
	}
	times := map[string]int{}
	for _, c := range r.take() {
		if times[c.ID]++; times[c.ID] > 1 {
			t.Errorf("told twice: %+v", c)
		}
	}
	if len(times) < 3*keys {
		t.Errorf("%d crossings, want at least %d", len(times), 3*keys)
	}
}

// TestConcurrentBorders uses windows of a ms, so that calls of several windows come at once. Each crossing is of a
// window of the test.
func TestConcurrentBorders(t *testing.T) {
	var r told
	began := time.Now()
	n := watch(t, newLocal(t, hybridlimit.FixedWindow(2, time.Millisecond), local.Config{}), notice.Config{On: r.on})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5000 {
				ask(t, n, "ann", 1)
			}
		})
	}
	all.Wait()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	got := r.take()
	if len(got) == 0 {
		t.Error("nothing was told")
	}
	for _, c := range got {
		if c.End.Sub(c.Begin) != time.Millisecond || c.End.Before(began) || c.Begin.After(time.Now()) || c.Used != 2 {
			t.Errorf("%+v", c)
		}
	}
}

// TestConcurrentEvictions has room for one key, or a few, and many that are called at once.
func TestConcurrentEvictions(t *testing.T) {
	for _, most := range []int{1, 7} {
		var got atomic.Int64
		limit := hybridlimit.FixedWindow(3, testenv.OpenWindow(time.Now(), 3, time.Hour))
		n := watch(t, newLocal(t, limit, local.Config{}), notice.Config{At: []float64{1}, MaxKeys: most, On: func(notice.Crossing) { got.Add(1) }})
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				for i := range 3000 {
					ask(t, n, fmt.Sprint("key-", (i+g)%20), 1)
				}
			})
		}
		all.Wait()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		s := n.Stats()
		if s.Keys > most || s.Evicted == 0 || uint64(got.Load()) != s.Told || got.Load()+int64(s.Lost) < 20 {
			t.Errorf("room for %d: %d told, %+v", most, got.Load(), s)
		}
	}
}

// TestConcurrentClose closes from several goroutines while others call and make classes.
func TestConcurrentClose(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		var r told
		limit := hybridlimit.FixedWindow(50, testenv.OpenWindow(time.Now(), 50, time.Hour))
		l := newLocal(t, limit, local.Config{Classes: []local.Class{{Name: "a", Floor: 0.1}, {Name: "b", Floor: 0.2}}})
		n, err := notice.New(l, notice.Config{On: r.on, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for g := range 6 {
			all.Go(func() {
				for i := range 300 {
					if _, err := n.ForClass([]string{"a", "b", "critical"}[i%3]).Allow(t.Context(), fmt.Sprint(i%5)); err != nil {
						t.Error(err)
					}
					if g < 2 && i == 150 {
						if err := n.Close(); err != nil && !errors.Is(err, hybridlimit.ErrClosed) {
							t.Error(err)
						}
						told := n.Stats().Told
						if len(r.take()) > int(told) || n.Stats().Waiting != 0 {
							t.Errorf("after Close: %+v", n.Stats())
						}
					}
				}
			})
		}
		all.Wait()
	}
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}
