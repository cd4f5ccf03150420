package keys

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestStoreWhileItChanges checks that a lookup without a lock returns the key's own entry or
// none, whatever happens meanwhile. It misses an unchanged entry only for a moment.
func TestStoreWhileItChanges(t *testing.T) {
	const keys, max = 400, 256
	s := NewStore(max, func() {})
	made := make([]*Entry, keys)
	for i := range made {
		made[i] = NewEntry(hubOnly, fmt.Sprint("k", i))
	}
	for i := range 20 {
		s.Add(made[i], 0)
	}
	var wg, readers sync.WaitGroup
	var stop atomic.Bool
	var found, missed atomic.Int64
	for g := range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			rng := rand.New(rand.NewPCG(2, uint64(g)))
			for !stop.Load() {
				i := rng.IntN(keys)
				switch e := s.Get(made[i].Name); {
				case e == nil:
					missed.Add(1)
				case e.Name != made[i].Name:
					t.Errorf("asked for %q, got %q", made[i].Name, e.Name)
				default:
					found.Add(1)
				}
			}
		}()
	}
	for g := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(3, uint64(g)))
			for range 5_000 {
				i := 20 + rng.IntN(keys-20)
				e := NewEntry(made[i].Terms, made[i].Name)
				if got, _ := s.Add(e, 0); got == nil || got.Name != e.Name {
					t.Errorf("added %q, got %v", e.Name, got)
				}
				for i := range 20 { // in use, so not the least recently used
					if s.Lookup(made[i].Name) != made[i] {
						t.Errorf("%q is gone", made[i].Name)
					}
				}
			}
		}()
	}
	wg.Wait()
	stop.Store(true)
	readers.Wait()
	if s.Keys.Load() > max || found.Load() == 0 || missed.Load() == 0 {
		t.Errorf("%d keys, at most %d; %d found, %d missed", s.Keys.Load(), max, found.Load(), missed.Load())
	}
	swept := 0
	s.Sweep(func(*Entry) { swept++ })
	each := 0
	s.Each(func(e *Entry) {
		each++
		if s.Get(e.Name) != e {
			t.Errorf("%q is not found", e.Name)
		}
	})
	if int64(swept) != s.Keys.Load() || int64(each) != s.Keys.Load() {
		t.Errorf("%d swept, %d of each, %d keys", swept, each, s.Keys.Load())
	}
}
