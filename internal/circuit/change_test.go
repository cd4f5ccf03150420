package circuit_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

func TestChangesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []breaker.Change
		b := newBreaker(t, breaker.Config{OpenFor: time.Second, OnChange: func(c breaker.Change) { got = append(got, c) }})
		b.SetRandom(func(n int64) int64 { return n / 4 })
		start := time.Now()
		last := errors.New("the last straw")
		call(t, b, errDown)
		call(t, b, errDown)
		call(t, b, last)
		halfOpen(t, b).End(0, errDown)
		halfOpen(t, b).End(0, nil)

		const c, h, o = breaker.Closed, breaker.HalfOpen, breaker.Open
		const d = 750 * time.Millisecond
		want := []breaker.Change{
			{From: c, To: o, Cause: last, At: start, OpenFor: d},
			{From: o, To: h, At: start.Add(d)},
			{From: h, To: o, Cause: errDown, At: start.Add(d), OpenFor: d},
			{From: o, To: h, At: start.Add(2 * d)},
			{From: h, To: c, At: start.Add(2 * d)},
		}
		if !slices.Equal(got, want) {
			t.Errorf("OnChange got %v\nwant %v", got, want)
		}
	})
}

// OnChange may call any method of the breaker. A change that it causes is
// delivered after it returns: the order holds, and it never runs inside itself.
func TestOnChangeMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *circuit.Breaker
		var got []breaker.State
		running := false
		b = newBreaker(t, breaker.Config{OnChange: func(c breaker.Change) {
			if running {
				t.Error("OnChange runs inside OnChange")
			}
			running = true
			defer func() { running = false }()
			if !b.Unlocked() {
				t.Error("OnChange runs under the lock")
			}
			got = append(got, c.To)
			if len(got) > 1 {
				return
			}
			want(t, b, breaker.Open)
			refused(t, b)
			halfOpen(t, b).End(0, nil)
			want(t, b, breaker.Closed)
			open(t, b)
		}})
		call(t, b, errDown)
		call(t, b, errDown)
		call(t, b, errDown) // all four changes are delivered before End returns
		if !slices.Equal(got, []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed, breaker.Open}) {
			t.Errorf("OnChange got %v", got)
		}
	})
}

// A slow OnChange delays only the goroutine that delivers. That goroutine also
// delivers the changes that come in between, in order.
func TestSlowOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []breaker.State
		told := func() []breaker.State {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(got)
		}
		b := newBreaker(t, breaker.Config{OnChange: func(c breaker.Change) {
			mu.Lock()
			got = append(got, c.To)
			mu.Unlock()
			time.Sleep(time.Minute)
		}})
		start := time.Now()
		go func() {
			for range 3 {
				call(t, b, errDown)
			}
		}()
		synctest.Wait()
		want(t, b, breaker.Open)
		halfOpen(t, b).End(0, nil)
		want(t, b, breaker.Closed)
		if d := time.Since(start); d > time.Second {
			t.Errorf("waited %v for OnChange", d)
		}
		if got := told(); len(got) != 1 {
			t.Errorf("OnChange got %v while its first call ran, want one change", got)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got := told(); !slices.Equal(got, []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed}) {
			t.Errorf("OnChange got %v", got)
		}
	})
}

// A panic or Goexit in OnChange ends its own goroutine only. The next Begin or
// End delivers the changes that it left.
func TestOnChangeThatDies(t *testing.T) {
	for _, test := range []struct {
		name string
		die  func()
	}{
		{"panic", func() { panic("at the disco") }},
		{"goexit", runtime.Goexit},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *circuit.Breaker
				var got []breaker.State
				b = newBreaker(t, breaker.Config{OnChange: func(c breaker.Change) {
					got = append(got, c.To)
					if len(got) == 1 {
						halfOpen(t, b).End(0, nil)
						test.die()
					}
				}})
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					for range 3 {
						call(t, b, errDown)
					}
				})
				wg.Wait()
				want(t, b, breaker.Closed)
				if len(got) != 1 {
					t.Errorf("OnChange got %v before the next Begin or End, want one change", got)
				}
				call(t, b, nil)
				if !slices.Equal(got, []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed}) {
					t.Errorf("OnChange got %v", got)
				}
			})
		})
	}
}
