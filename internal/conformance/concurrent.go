package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

const callers = 16

// However many call at once, a key gives out its burst and no more.
func concurrentCallers(t *testing.T, spec Spec) {
	s := still(t, spec, 100)
	keys := []string{"a", "b", "c"}
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := range spec.calls(60) {
				s.allow(keys[(g+i)%len(keys)], int64(1+i%3))
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		s.drain(k)
		if got, want := s.total(k), s.limit.BurstSize(); spec.Exact && got != want {
			t.Errorf("key %s: %d units admitted, want %d", k, got, want)
		}
	}
}

// The same with time going on. Nor is a key starved: single callers who wait
// for what they are told, all get through.
func concurrentRefill(t *testing.T, spec Spec) {
	s := newSubject(t, spec, 1000, time.Second, 20)
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := range spec.calls(30) {
				s.allow("k", int64(1+(g+i)%4))
				s.spec.Sleep(time.Duration(g%3+1) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	denial, _ := s.drain("k")
	s.await("k", 1, denial)
	if want := s.limit.BurstSize(); spec.Exact && s.total("k") < want {
		t.Errorf("%d units admitted, %d were there from the start", s.total("k"), want)
	}
}

// A closed limiter decides nothing, and can be closed again.
func closed(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	s.allow("k", 1)
	for i := range 3 {
		if err := spec.Close(s.lim); err != nil {
			t.Errorf("Close, time %d: %v", i+1, err)
		}
		for _, key := range []string{"k", "fresh"} {
			for _, n := range []int64{1, 2, 6} {
				res, err := s.lim.AllowN(context.Background(), key, n)
				if !errors.Is(err, hybridlimit.ErrClosed) {
					t.Errorf("AllowN(%q, %d) when closed: error %v, want ErrClosed", key, n, err)
				}
				if res.Allowed || res.Granted != 0 {
					t.Errorf("AllowN(%q, %d) when closed granted something: %+v", key, n, res)
				}
			}
			if _, err := s.lim.Allow(context.Background(), key); !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("Allow(%q) when closed: error %v, want ErrClosed", key, err)
			}
		}
	}
}

// Closing under load: each call is decided or gets ErrClosed.
func closedInUse(t *testing.T, spec Spec) {
	s := still(t, spec, 1000)
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			key := fmt.Sprint("k", g%4)
			for i := range spec.calls(50) {
				if g == 0 && i == spec.calls(25) {
					if err := spec.Close(s.lim); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
				res, err := s.lim.Allow(context.Background(), key)
				switch {
				case err == nil:
					s.check(key, 1, res)
				case !errors.Is(err, hybridlimit.ErrClosed):
					t.Errorf("closing gave a caller %v, want ErrClosed", err)
				case res.Allowed || res.Granted != 0:
					t.Errorf("failed with %v and granted something: %+v", err, res)
				}
			}
		})
	}
	wg.Wait()
	if _, err := s.lim.Allow(context.Background(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("after all callers are done: error %v, want ErrClosed", err)
	}
}
