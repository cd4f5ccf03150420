package local

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// TestEvictsLikePlainLRU compares the calls that find their key evicted with those in a
// golang-lru of the same size, under the same calls.
func TestEvictsLikePlainLRU(t *testing.T) {
	const room, inUse, calls = 2000, 6000, 100_000
	for _, tc := range []struct {
		name string
		scan int // calls with a new key for each call with a key in use
		key  func(r *rand.Rand) func() int
	}{
		{"Zipf", 0, byZipf(inUse)},
		{"Zipf and a scan", 9, byZipf(room / 5)},
		{"uniform", 0, func(r *rand.Rand) func() int { return func() int { return r.IntN(room + room/10) } }},
		{"the keys in use change", 0, func(r *rand.Rand) func() int {
			next, n := byZipf(inUse)(r), 0
			return func() int { n++; return next() + n/(calls/10)*inUse }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, now := at(t, hybridlimit.PerHour(1000), Config{MaxKeys: room})
			plain, err := simplelru.NewLRU[string, struct{}](room, nil)
			if err != nil {
				t.Fatal(err)
			}
			var missed, missedInPlain int
			call := func(key string, counts bool) {
				if counts && l.held(key) == nil {
					missed++
				}
				now = now.Add(time.Microsecond)
				ask(t, l, now, key, 1)
				if _, ok := plain.Get(key); !ok {
					if counts {
						missedInPlain++
					}
					plain.Add(key, struct{}{})
				}
			}
			next := tc.key(rand.New(rand.NewPCG(testenv.Seed(t), 0)))
			for i := range calls / (1 + tc.scan) {
				call(fmt.Sprint("in use ", next()), true)
				for j := range tc.scan {
					call(fmt.Sprint("scan ", i, " ", j), false)
				}
			}
			t.Logf("%d calls found their key evicted, in a plain LRU %d", missed, missedInPlain)
			if missed > missedInPlain+missedInPlain/20 {
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
