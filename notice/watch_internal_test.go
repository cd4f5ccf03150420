package notice

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

func newWatched(t *testing.T, cfg Config) *Limiter {
	t.Helper()
	l, err := local.New(hybridlimit.FixedWindow(10, time.Hour), local.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.On, cfg.Logger = func(Crossing) {}, slog.New(slog.DiscardHandler)
	n, err := New(l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// TestEvictedKeysAreFree checks that nothing holds a key that was evicted, after its looks.
func TestEvictedKeysAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t, Config{MaxKeys: 3})
		for i := range 100 {
			if _, err := n.Allow(t.Context(), fmt.Sprint("key-", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		held := 0
		for i := range n.watch.table {
			if n.watch.table[i].Load() != nil {
				held++
			}
		}
		s := &n.watch.shards[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		if held > 3 || s.keys.Len() != 3 || s.listed != 0 || len(s.fresh) != 0 {
			t.Errorf("the table holds %d keys, the LRU %d; %d and %d are listed", held, s.keys.Len(), s.listed, len(s.fresh))
		}
	})
}

// TestSizes makes Limiters for one key and for as many as an int can count.
func TestSizes(t *testing.T) {
	for most, want := range map[int]int{1: 2, 2: 4, 3: 8, 1000: 2048, mostPlaces: mostPlaces, math.MaxInt: mostPlaces} {
		synctest.Test(t, func(t *testing.T) {
			n := newWatched(t, Config{MaxKeys: most})
			if got := len(n.watch.table); got != want {
				t.Errorf("%d places for %d keys, want %d", got, most, want)
			}
			for i := range 10 {
				if _, err := n.Allow(t.Context(), fmt.Sprint("key-", i)); err != nil {
					t.Fatal(err)
				}
			}
			if s := n.Stats(); s.Keys != min(most, 10) || most > 5 && s.Skipped != 0 {
				t.Errorf("room for %d: %+v", most, s)
			}
		})
	}
}

// TestAResultAfterClose compares the Result of a call that was on its way while Close ended. Its crossings are lost once.
func TestAResultAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t, Config{})
		e := n.use(maphash.String(n.watch.seed, "ann"), "ann")
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		res := hybridlimit.Result{Limit: 10, ResetAfter: time.Minute, Source: hybridlimit.SourceLocal}
		for range 3 {
			n.compare(e, &res)
		}
		if s := n.Stats(); s.Lost != 2 || s.Told != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		n.note("ann", &res)
		n.note("bob", &res)
		if s := n.Stats(); s.Lost != 2 || s.Keys != 1 {
			t.Errorf("%+v", s)
		}
	})
}
