package hybrid

import (
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestFastPathEndsBeforeTheMembership checks that a process that is cut off begins no call after the end of its
// membership, even if its ticker is late by 300 ms. From that end on, other processes may use its permits. The fast
// path reads no clock. It knows the time by the epoch, which stands still while the ticker is late. So the fast path
// must end 300 ms before the membership does. Calls on the slow path read the clock, and go on until the end.
func TestFastPathEndsBeforeTheMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		// The heartbeat that hangs ends after the membership: until then, nothing but the time ends the fast path.
		h, err := NewHub(link.Client(nil), HubConfig{Logger: slog.New(slog.DiscardHandler), SyncTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		l, err := h.Concurrency(hybridlimit.Concurrent(4), ConcurrencyConfig{Name: "calls", Fallback: FallbackDenyAll})
		if err != nil {
			t.Fatal(err)
		}
		keep, _, err := l.Acquire(t.Context(), "k") // the tag is new: Redis learns for some seconds
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		keep.Release()
		for range 300 { // so that the process keeps a permit for the next call
			p, _, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			time.Sleep(keys.Tick)
		}
		link.Pause()
		// The count of the fleet becomes stale after 1.5 s, which also ends the fast path. It does not if the answer
		// had no use as a count, because a group of processes was missing in it.
		h.clock.EndAll(math.MaxInt64)
		var fast, slow time.Duration // the ages of the last calls
		var ends time.Duration
		for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(keys.Tick) {
			synctest.Wait()
			var res hybridlimit.Result
			now := time.Duration(h.clock.Now())
			k, err := l.in.Look("k")
			if err != nil {
				t.Fatal(err)
			}
			if ends = time.Duration(k.Until); ends == 0 {
				t.Fatal("the process is no member")
			}
			if e := l.in.Take(t.Context(), "k", 1, &res); e != nil {
				fast = now
				e.ReleasePermits(1)
			}
			if p, res, err := l.Acquire(t.Context(), "k"); err == nil && res.Allowed {
				slow = now
				p.Release()
			}
		}
		switch before := ends - fast; {
		case fast == 0:
			t.Error("no call is on the fast path")
		case before < 300*time.Millisecond-keys.Tick:
			t.Errorf("the last call on the fast path began %v before the end of the membership, want 300 ms", before)
		case before > 310*time.Millisecond:
			t.Errorf("the last call on the fast path began %v before the end of the membership, too early", before)
		}
		if before := ends - slow; before <= 0 || before > 2*keys.Tick {
			t.Errorf("the last call began %v before the end of the membership", before)
		}
	})
}
