package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// coldAsks returns a hub over a link with a round trip of 10 ms, and asks under eight limits of it whose keys it does not know.
func coldAsks(t *testing.T, b *redistest.Bubble, tags int) (link *redistest.MemLink, h *hybrid.Hub, asks []hybridlimit.Ask) {
	link = b.Link()
	link.Latency(5*time.Millisecond, 5*time.Millisecond)
	h = newHub(t, link.Client(nil), hybrid.HubConfig{Tags: tags})
	for i := range 8 {
		l := add(t, h, still(5), hybrid.Config{Name: fmt.Sprint("l", i), Mode: hybrid.ModeStrict, MaxWait: time.Second})
		asks = append(asks, hybridlimit.Ask{Limiter: l, Key: fmt.Sprint("k", i), N: 1})
	}
	time.Sleep(2300 * time.Millisecond)
	ask(t, asks[0].Limiter.(*hybrid.Limiter), "warm", 1) // the connection is open
	return link, h, asks
}

// TestAllowAllAsksForColdKeysTogether counts the messages and the round trips of a call under eight limits whose keys are not in
// memory. Regression: each key had a message of its own, after the answer for the key before it.
func TestAllowAllAsksForColdKeysTogether(t *testing.T) {
	for _, tc := range []struct {
		tags int
		most uint64 // messages
	}{{1, 1}, {1024, 8}} {
		synctest.Test(t, func(t *testing.T) {
			_, h, asks := coldAsks(t, redistest.NewBubble(t), tc.tags)
			for i := range asks { // as many connections as messages are open
				asks[i].Key = fmt.Sprint("warm", i)
			}
			must(t)(hybridlimit.AllowAll(t.Context(), asks...))
			for i := range asks {
				asks[i].Key = fmt.Sprint("k", i)
			}
			before, began := h.Stats(), time.Now()
			if res := must(t)(hybridlimit.AllowAll(t.Context(), asks...)); !res.Allowed || res.Remaining != 4 {
				t.Errorf("%+v", res)
			}
			took, after := time.Since(began), h.Stats()
			if got := after.Syncs - before.Syncs; got > tc.most || after.SyncOps-before.SyncOps != 8 {
				t.Errorf("%d tags: %d messages with %d keys, want at most %d with 8", tc.tags, got, after.SyncOps-before.SyncOps, tc.most)
			}
			if took > 10*time.Millisecond {
				t.Errorf("%d tags: the call took %v, want a round trip of 10 ms", tc.tags, took)
			}
		})
	}
}

// TestAllowAllColdKeyDenies checks a call under cold keys of which one denies. The answer is that of its limit. The units of the
// others are lost and counted, once: the next call is denied from memory.
func TestAllowAllColdKeyDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		_, h, asks := coldAsks(t, b, 16)
		other := newHub(t, b.Client(nil), hybrid.HubConfig{Tags: 16})
		ask(t, add(t, other, still(5), hybrid.Config{Name: "l3", Mode: hybrid.ModeStrict}), "k3", 5)
		for i := range 3 {
			before := h.Stats()
			res := must(t)(hybridlimit.AllowAll(t.Context(), asks...))
			if res.Allowed || res.Policy != "l3" || res.Limit != 5 || res.RetryAfter <= 0 {
				t.Errorf("call %d: %+v", i, res)
			}
			if got := h.Stats().SyncOps - before.SyncOps; i > 0 && got > 0 {
				t.Errorf("call %d asked Redis for %d keys", i, got)
			}
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		var lost, denied int64
		for i, a := range asks {
			s := a.Limiter.(*hybrid.Limiter).Stats()
			if lost += s.Lost; s.Lost > 1 {
				t.Errorf("limit %d: %+v", i, s)
			}
			for _, n := range s.Denied {
				denied += n
			}
			if got := balance(t, s); i != 3 && i > 0 && debited(t, b.Client(nil), fmt.Sprint("l", i), a.Key) != got {
				t.Errorf("limit %d: Redis debited another number than %d: %+v", i, got, s)
			}
		}
		if lost != 7 || denied != 3 {
			t.Errorf("%d units lost and %d denials, want 7 and 3", lost, denied)
		}
	})
}

// TestAllowAllColdKeysWithoutAnswers checks that a call under cold keys waits for an absent Redis once, and not once for each key.
func TestAllowAllColdKeysWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link, _, asks := coldAsks(t, b, 16)
		link.Pause()
		began := time.Now()
		must(t)(hybridlimit.AllowAll(t.Context(), asks...))
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("the call took %v, want at most MaxWait, which is 1 s", took)
		}
	})
}
