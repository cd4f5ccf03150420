package hybridlimit_test

import (
	"sync"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

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
