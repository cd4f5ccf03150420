//go:build !race

// One goroutine calls.

package hybrid

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// TestEvictsLikePlainLRU compares the calls that find their key evicted with those in a golang-lru of the same size, under
// the same calls. Each use is noted.
func TestEvictsLikePlainLRU(t *testing.T) {
	const room, inUse, calls = 2000, 6000, 100_000
	for _, tc := range []struct {
		name  string
		scan  int // calls with a new key for each call with a key in use
		first int // calls that are not counted: they fill the store
		extra int // more misses than in golang-lru that are permitted
		key   func(r *rand.Rand) func() int
	}{
		{"Zipf", 0, room, 0, byZipf(inUse)},
		{"Zipf and a scan", 9, room, 0, byZipf(room / 5)},
		{"uniform", 0, room, 0, func(r *rand.Rand) func() int { return func() int { return r.IntN(room + room/10) } }},
		{"the keys in use change", 0, room, 0, func(r *rand.Rand) func() int {
			next, n := byZipf(inUse)(r), 0
			return func() int { n++; return next() + n/(calls/10)*inUse }
		}},
		// All keys in use came one after the other, so the hand meets half a round of marks. It evicts one of them after
		// as many as it may pass over.
		{"keys in use side by side", 1, room / 2, calls / 2 / passes, func(*rand.Rand) func() int {
			n := 0
			return func() int { n++; return n % (room / 2) }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(room, func() {})
			plain, err := simplelru.NewLRU[string, struct{}](room, nil)
			if err != nil {
				t.Fatal(err)
			}
			var missed, missedInPlain int
			call := func(key string, counts bool) {
				if s.lookup(key) == nil {
					if counts {
						missed++
					}
					s.add(newEntry(hubOnly, key), 0)
				}
				if _, ok := plain.Get(key); !ok {
					if counts {
						missedInPlain++
					}
					plain.Add(key, struct{}{})
				}
			}
			next := tc.key(rand.New(rand.NewPCG(testenv.Seed(t), 0)))
			for range tc.first {
				call(fmt.Sprint("in use ", next()), false)
			}
			for i := range calls / (1 + tc.scan) {
				call(fmt.Sprint("in use ", next()), true)
				for j := range tc.scan {
					call(fmt.Sprint("scan ", i, " ", j), false)
				}
			}
			t.Logf("%d calls found their key evicted, in a plain LRU %d", missed, missedInPlain)
			if missed > missedInPlain+missedInPlain/20+tc.extra {
				t.Errorf("%d calls found their key evicted, in a plain LRU only %d", missed, missedInPlain)
			}
		})
	}
}

func byZipf(keys uint64) func(*rand.Rand) func() int {
	return func(r *rand.Rand) func() int {
		z := rand.NewZipf(r, 1.1, 1, keys-1)
		return func() int { return int(z.Uint64()) }
	}
}
