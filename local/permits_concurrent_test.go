package local

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Many goroutines on few keys: never more permits than the limit, and none at the end.
func TestConcurrencyUnderLoad(t *testing.T) {
	const limit = 7
	l := permits(t, hybridlimit.Concurrent(limit), ConcurrencyConfig{MaxWait: time.Minute, MaxKeys: 3})
	var running [3]atomic.Int64
	var all sync.WaitGroup
	for g := range 24 {
		all.Go(func() {
			for i := range 300 {
				k, n := (g+i)%3, int64(1+(g*i)%4)
				ctx, cancel := context.WithCancel(t.Context())
				if i%5 == 0 {
					go cancel()
				}
				p, res, err := l.AcquireN(ctx, fmt.Sprint("key", k), n)
				if res.Allowed {
					if now := running[k].Add(n); now > limit {
						t.Errorf("%d permits are held", now)
					}
					running[k].Add(-n)
				} else if err == nil {
					t.Error("denied")
				}
				p.Release()
				cancel()
			}
		})
	}
	all.Wait()
	if l.Len() != 0 {
		t.Errorf("%d keys are held", l.Len())
	}
}

// A call that panics releases its permit, and so do copies, once.
func TestConcurrencyPanicsAndCopies(t *testing.T) {
	l := permits(t, hybridlimit.Concurrent(3), ConcurrencyConfig{})
	func() {
		defer func() { _ = recover() }()
		defer take(t, l, "k", 3).Release()
		panic("a bug")
	}()
	if l.Len() != 0 {
		t.Fatal("the permit is held after a panic")
	}
	for range 500 {
		other, p := take(t, l, "k", 1), take(t, l, "k", 1)
		var all sync.WaitGroup
		for range 8 {
			all.Go(p.Release)
		}
		all.Wait()
		if l.Running("k") != 1 {
			t.Fatalf("%d are running", l.Running("k"))
		}
		other.Release()
	}
}

// A context that ends in the moment of the admission leaves no permit behind.
func TestConcurrencyContextEndsWithTheAdmission(t *testing.T) {
	l := permits(t, hybridlimit.Concurrent(1), ConcurrencyConfig{MaxWait: hybridlimit.Never})
	for range 2000 {
		held := take(t, l, "k", 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p, res, err := l.Acquire(ctx, "k")
			if res.Allowed != (err == nil) || res.Allowed != (p != hybridlimit.Permit{}) {
				t.Errorf("%+v, %v", res, err)
			}
			p.Release()
		}()
		go cancel()
		held.Release()
		<-done
		if l.Len() != 0 {
			t.Fatalf("%d are running", l.Running("k"))
		}
	}
}
