package limittest_test

import (
	"sync"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

func TestConcurrentCallsAreAllNoted(t *testing.T) {
	const calls = 100
	s := limittest.Play(make([]hybridlimit.Result, calls)...)
	r := limittest.Record(s)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() { r.Allow(t.Context(), "k") })
	}
	wg.Wait()
	if len(r.Calls()) != calls || s.Left() != 0 {
		t.Errorf("%d noted, %d left", len(r.Calls()), s.Left())
	}
}

func TestLeakedPermits(t *testing.T) {
	r := limittest.RecordPermits(nil)
	var held []hybridlimit.Permit
	for i, key := range []string{"a", "b", "c"} {
		p, _, err := r.AcquireN(t.Context(), key, int64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, p)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(held[1].Release)
	}
	all.Wait()
	r.Reset() // keeps the permits
	if got := r.Leaked(); len(got) != 2 || got[0].Key != "a" || got[1].Key != "c" || got[1].N != 3 || r.Held() != 4 {
		t.Errorf("%+v, %d held", got, r.Held())
	}
	held[0].Release()
	held[2].Release()
	if got := r.Leaked(); len(got) != 0 || r.Held() != 0 {
		t.Errorf("%+v, %d held at the end", got, r.Held())
	}
}
