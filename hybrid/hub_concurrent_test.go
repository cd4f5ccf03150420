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

func TestLimitersOfAHubShareMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		const limiters = 20
		// One tag, so that all can go in one message.
		h := newHub(t, link.Client(nil), hybrid.HubConfig{Tags: 1})
		var ls []*hybrid.Limiter
		for i := range limiters {
			ls = append(ls, add(t, h, hybridlimit.TokenBucket(1, time.Second, 1000), hybrid.Config{
				Name: fmt.Sprint("l", i), Mode: hybrid.ModeDeferred,
			}))
		}
		time.Sleep(3 * time.Second)
		for _, l := range ls {
			ask(t, l, "k", 1) // the key is cold: its first call asks Redis
		}
		before := h.Stats()
		for range 10 {
			for _, l := range ls {
				ask(t, l, "k", 1)
			}
			time.Sleep(100 * time.Millisecond) // 2·T
		}
		time.Sleep(100 * time.Millisecond)
		after := h.Stats()
		beats := uint64(limiters * 2) // at most, in 1.1 s
		if ops, msgs := after.Ops-before.Ops, after.Messages-before.Messages; ops != 10*limiters || msgs > 20+beats {
			t.Errorf("%d ops in %d messages (at most %d of them heartbeats), want %d ops in 10 to 20", ops, msgs, beats, 10*limiters)
		}
	})
}
