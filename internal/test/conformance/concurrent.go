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

// together runs call n times, in turn, in each of the callers. g is the number of the caller.
func together(n int, call func(g, i int)) {
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := range n {
				call(g, i)
			}
		})
	}
	wg.Wait()
}

// concurrentCallers checks that a key gives concurrent callers its burst and no more.
func concurrentCallers(t *testing.T, spec Spec) {
	s := still(t, spec, 100)
	keys := []string{"a", "b", "c"}
	together(spec.calls(60), func(g, i int) { s.allow(keys[(g+i)%len(keys)], int64(1+i%3)) })
	for _, k := range keys {
		s.drain(k)
		if got, want := s.total(k), s.limit.BurstSize(); spec.Exact && got != want {
			t.Errorf("key %s: %d units admitted, want %d", k, got, want)
		}
	}
}

// concurrentRefill is concurrentCallers while time passes. Afterwards a caller that waits for its RetryAfter is
// admitted.
func concurrentRefill(t *testing.T, spec Spec) {
	s := newSubject(t, spec, 1000, time.Second, 20)
	together(spec.calls(30), func(g, i int) {
		s.allow("k", int64(1+(g+i)%4))
		s.spec.Sleep(time.Duration(g%3+1) * time.Millisecond)
	})
	denial, _ := s.drain("k")
	s.await("k", 1, denial)
	if want := s.limit.BurstSize(); spec.Exact && s.total("k") < want {
		t.Errorf("%d units admitted, want at least the burst of %d", s.total("k"), want)
	}
}

// closed checks that a closed limiter makes no decisions by any verb, and that it can be closed again.
func closed(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	s.allow("k", 1)
	for i := range 3 {
		if err := spec.Close(s.lim); err != nil {
			t.Errorf("Close, time %d: %v", i+1, err)
		}
		for _, v := range s.verbs() {
			for _, key := range []string{"k", "fresh"} {
				for _, n := range []int64{1, 2, 6} {
					res, err := v.do(context.Background(), key, n)
					if !errors.Is(err, hybridlimit.ErrClosed) || res.Allowed || res.Granted != 0 {
						t.Errorf("%s(%q, %d) when closed = %+v, %v, want ErrClosed", v.name, key, n, res, err)
					}
				}
			}
		}
	}
	if !spec.partial {
		if err := s.lim.SetLimit(s.limit); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("SetLimit when closed: %v, want ErrClosed", err)
		}
	}
}

// closedInUse checks that each call gets a decision or ErrClosed if the limiter is closed under load.
func closedInUse(t *testing.T, spec Spec) {
	s := still(t, spec, 1000)
	together(spec.calls(50), func(g, i int) {
		key := fmt.Sprint("k", g%4)
		if g == 0 && i == spec.calls(25) {
			if err := spec.Close(s.lim); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		res, err := s.lim.Allow(context.Background(), key)
		s.answered(key, res, err, hybridlimit.ErrClosed)
	})
	if _, err := s.lim.Allow(context.Background(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("a call after Close: error %v, want ErrClosed", err)
	}
}
