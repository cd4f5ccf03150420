package hybrid

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestScanEvictsLikePlainLRU checks that keys in use survive a scan of keys that are used once as they do in a plain
// golang-lru of the same size, although the fast path notes no use. Keys without a lease are lost by the same calls. A key
// with a lease gives it back before it is evicted, and counts as used: fewer are lost. One of ten calls is for a key in use,
// with a Zipf distribution, so some of these keys are rarely used. The test runs on a real Redis, because miniredis looks at
// all its keys whenever time has passed.
func TestScanEvictsLikePlainLRU(t *testing.T) {
	for _, tt := range []struct {
		name  string
		mode  Mode
		limit hybridlimit.Limit
		exact bool
	}{
		{"auto", ModeAuto, hybridlimit.PerSecond(1000), false},
		{"strict", ModeStrict, hybridlimit.PerSecond(1000), false},
		{"no leases", ModeStrict, hybridlimit.TokenBucket(1, time.Microsecond, 1), true},
		{"used up", ModeStrict, hybridlimit.TokenBucket(1, time.Hour, 1), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const size, inUse, calls, per = 100, 6, 400, 9
			rdb := redistest.New(t).Client(t)
			l, err := New(rdb, tt.limit, Config{
				Name: "scan", Mode: tt.mode, MaxKeys: size, MaxWait: 10 * time.Second,
				Hub: HubConfig{Logger: slog.New(slog.DiscardHandler), SyncTimeout: 10 * time.Second},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			plain, err := simplelru.NewLRU[string, struct{}](size, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			ask := func(key string) (gone, goneInPlain bool) {
				gone = l.terms.Store.Get(key) == nil
				if _, ok := plain.Get(key); !ok {
					goneInPlain = true
					plain.Add(key, struct{}{})
				}
				if _, err := l.Allow(context.Background(), key); err != nil {
					t.Fatal(err)
				}
				return gone, goneInPlain
			}
			seed := testenv.Seed(t)
			z := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), 1.1, 1, inUse-1)
			var missed, missedInPlain int
			for i := range calls {
				gone, goneInPlain := ask(fmt.Sprint("in use ", z.Uint64()))
				if tt.exact && gone != goneInPlain {
					t.Fatalf("seed %d: call %d for a key in use: gone is %t, in a plain LRU %t", seed, i, gone, goneInPlain)
				}
				if i > size/per { // both are full
					if gone {
						missed++
					}
					if goneInPlain {
						missedInPlain++
					}
				}
				for j := range per {
					ask(fmt.Sprint("scan ", i, " ", j))
				}
			}
			t.Logf("%d calls for a key in use: %d found it gone, %d in a plain LRU; %d keys found memory full of keys that owe",
				calls, missed, missedInPlain, l.terms.Store.Refused.Load())
			if missedInPlain < calls/50 {
				t.Errorf("a plain LRU lost %d of %d, so the test proves nothing", missedInPlain, calls)
			}
			if missed > missedInPlain {
				t.Errorf("seed %d: keys in use were gone %d times, in a plain LRU %d times", seed, missed, missedInPlain)
			}
		})
	}
}
