package gate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// TestRecentConcurrently asks for more keys than there is room for, and for as many. With enough
// room, all goroutines get one value of a key.
func TestRecentConcurrently(t *testing.T) {
	var made atomic.Int64
	r := NewRecent(8, func() *atomic.Int64 { made.Add(1); return new(atomic.Int64) })
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				r.Of(fmt.Sprint("k", (i*(g+1))%20)).Add(1)
			}
		})
	}
	all.Wait()
	if r.lru.Len() != 8 || made.Load() < 20 {
		t.Errorf("%d keys, %d values", r.lru.Len(), made.Load())
	}
	shared := NewRecent(8, func() *atomic.Int64 { return new(atomic.Int64) })
	for range 8 {
		all.Go(func() {
			for i := range 800 {
				shared.Of(fmt.Sprint("k", i%8)).Add(1)
			}
		})
	}
	all.Wait()
	for i := range 8 {
		if n := shared.Of(fmt.Sprint("k", i)).Load(); n != 800 {
			t.Errorf("key %d was used %d times, want 800", i, n)
		}
	}
}
