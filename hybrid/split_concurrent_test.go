package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestSplitMovesUnderCalls has eight callers on split keys of two classes in three processes, each above its limit,
// while processes move between parts, limits change, and Redis goes away for a while. The books are equal at the end.
func TestSplitMovesUnderCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		var ls, all []*hybrid.Limiter
		for range 3 {
			h := newHub(t, link.Client(nil), hybrid.HubConfig{})
			for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
				l := add(t, h, hybridlimit.TokenBucket(60, time.Second, 300), hybrid.Config{
					Name: mode.String(), Mode: mode, MaxKeys: 40, Split: into(12), Classes: []hybrid.Class{{Name: "batch", Floor: 0.2}},
				})
				batch, err := l.Class("batch")
				if err != nil {
					t.Fatal(err)
				}
				ls, all = append(ls, l, batch), append(all, l)
			}
		}
		time.Sleep(3 * time.Second)
		moved := make([]map[int]bool, len(ls))
		var wg sync.WaitGroup
		for i, l := range ls {
			moved[i] = map[int]bool{}
			for caller := range 2 {
				rnd := rand.New(rand.NewPCG(uint64(i), uint64(caller)))
				wg.Go(func() {
					for call := range 1300 {
						key := fmt.Sprint("key", rnd.IntN(2))
						ask(t, l, key, 1+rnd.Int64N(3))
						if caller == 0 && call%50 == 0 {
							in, err := l.Inspect(t.Context(), "key0")
							if err != nil {
								t.Error(err)
							}
							moved[i][in.Part] = true
						}
						time.Sleep(time.Duration(rnd.Int64N(int64(60 * time.Millisecond))))
					}
				})
			}
		}
		time.Sleep(20 * time.Second)
		link.Pause()
		time.Sleep(3 * time.Second)
		link.Resume()
		for i, l := range all {
			if err := l.SetLimit(hybridlimit.TokenBucket(40+int64(i), time.Second, 200)); err != nil {
				t.Error(err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		wg.Wait()
		moves := 0
		for _, parts := range moved {
			moves += len(parts) - 1
		}
		if moves < 3 {
			t.Errorf("%d moves", moves)
		}
		for _, l := range all {
			shutdown(t, l)
			s := l.Stats()
			balance(t, s)
			if s.Held != 0 || s.Owed != 0 {
				t.Errorf("held %d, owed %d", s.Held, s.Owed)
			}
		}
	})
}
