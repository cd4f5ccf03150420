package hybrid

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
	s := newStore(max, func() {})
	made := make([]*entry, keys)
	for i := range made {
		made[i] = newEntry(hubOnly, fmt.Sprint("k", i))
	}
	for i := range 20 {
		s.add(made[i], 0)
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
				switch e := s.get(made[i].name); {
				case e == nil:
					missed.Add(1)
				case e.name != made[i].name:
					t.Errorf("asked for %q, got %q", made[i].name, e.name)
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
				e := newEntry(made[i].of, made[i].name)
				if got, _ := s.add(e, 0); got == nil || got.name != e.name {
					t.Errorf("added %q, got %v", e.name, got)
				}
				for i := range 20 { // in use, so not the least recently used
					if s.lookup(made[i].name) != made[i] {
						t.Errorf("%q is gone", made[i].name)
					}
				}
			}
		}()
	}
	wg.Wait()
	stop.Store(true)
	readers.Wait()
	if s.keys.Load() > max || found.Load() == 0 || missed.Load() == 0 {
		t.Errorf("%d keys, at most %d; %d found, %d missed", s.keys.Load(), max, found.Load(), missed.Load())
	}
	swept := 0
	s.sweep(func(*entry) { swept++ })
	each := 0
	s.each(func(e *entry) {
		each++
		if s.get(e.name) != e {
			t.Errorf("%q is not found", e.name)
		}
	})
	if int64(swept) != s.keys.Load() || int64(each) != s.keys.Load() {
		t.Errorf("%d swept, %d of each, %d keys", swept, each, s.keys.Load())
	}
}
