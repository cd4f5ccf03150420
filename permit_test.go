package hybridlimit_test

import (
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
