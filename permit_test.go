package hybridlimit_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// holder counts the permits that it has taken back.
type holder struct{ calls, back atomic.Int64 }

func (h *holder) ReleasePermits(n int64) {
	h.calls.Add(1)
	h.back.Add(n)
}

// TestPermitIsReleasedOnce releases copies of one permit from many goroutines.
func TestPermitIsReleasedOnce(t *testing.T) {
	var h holder
	p := hybridlimit.NewPermit(&h, 3)
	var all sync.WaitGroup
	for range 64 {
		all.Go(p.Release)
	}
	all.Wait()
	if h.calls.Load() != 1 || h.back.Load() != 3 {
		t.Errorf("released %d times, %d places", h.calls.Load(), h.back.Load())
	}
	hybridlimit.Permit{}.Release() // holds no place
}

// TestAnOldCopyReleasesNoOtherPermit releases old permits while their slots hold
// new ones.
func TestAnOldCopyReleasesNoOtherPermit(t *testing.T) {
	var all sync.WaitGroup
	var old sync.Map
	for g := range 8 {
		all.Go(func() {
			var h holder
			for i := range int64(2000) {
				p := hybridlimit.NewPermit(&h, 1)
				if h.calls.Load() != i {
					t.Errorf("permit %d was released by a copy of another", i)
					return
				}
				old.Range(func(_, stale any) bool {
					stale.(hybridlimit.Permit).Release()
					return true
				})
				if h.calls.Load() != i {
					t.Errorf("permit %d was released by a copy of another", i)
					return
				}
				p.Release()
				old.Store([2]int64{int64(g), i % 16}, p)
			}
		})
	}
	all.Wait()
}

// TestHolderMayAcquireInRelease takes the next permit while one is released, as a
// holder does that serves a waiting call.
func TestHolderMayAcquireInRelease(t *testing.T) {
	var h holder
	var next hybridlimit.Permit
	p := hybridlimit.NewPermit(handing(func() { next = hybridlimit.NewPermit(&h, 1) }), 1)
	p.Release()
	p.Release()
	if h.calls.Load() != 0 {
		t.Error("the old permit has released the next one")
	}
	next.Release()
	if h.calls.Load() != 1 {
		t.Error("the next permit was not released")
	}
}

// handing is a holder with a function.
type handing func()

func (h handing) ReleasePermits(int64) { h() }

func TestPermitsDoNotAllocate(t *testing.T) {
	var h holder
	if n := testing.AllocsPerRun(1000, func() { hybridlimit.NewPermit(&h, 1).Release() }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}
