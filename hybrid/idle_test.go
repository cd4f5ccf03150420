package hybrid_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// tickers counts the goroutines that advance an epoch.
func tickers() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "hybrid.(*clock).run(")
}

func TestIdleSendsHeartbeatsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l := newLimiter(t, link.Client(nil), hybridlimit.PerSecond(1000), hybrid.Config{})
		before := tickers()
		for range 200 {
			ask(t, l, "k", 1)
			time.Sleep(time.Millisecond)
		}
		if tickers() == 0 {
			t.Error("no ticker runs in use")
		}
		time.Sleep(10 * time.Second) // what is owed gets paid, leases expire
		if got := tickers(); got > before {
			t.Errorf("%d tickers run while idle, %d before", got, before)
		}
		seen := func() (heartbeats, others int) {
			for cmd, c := range link.Counts() {
				if cmd == "EVALSHA" {
					heartbeats += c.Seen
				} else {
					others += c.Seen
				}
			}
			return
		}
		beats, others := seen()
		sent := l.Hub().Stats()
		time.Sleep(60 * time.Second)
		beats2, others2 := seen()
		if beats2-beats != 60 || others2 != others {
			t.Errorf("in 60 s without traffic: %d heartbeats and %d other commands, want 60 and 0", beats2-beats, others2-others)
		}
		if got := l.Hub().Stats(); got.Messages-sent.Messages != 60 || got.Ops != sent.Ops {
			t.Errorf("in 60 s without traffic the hub counted %+v, before %+v", got, sent)
		}
	})
}

// What lies in a word when the ticker stops must not be spent when it starts
// again: nothing that it was based on still holds.
func TestNothingStaleIsSpentAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(1000, time.Second, 2000), hybrid.Config{Mode: hybrid.ModeStrict})
		res := ask(t, l, "k", 1)
		for range 300 { // a hot key: it gets a lease
			res = ask(t, l, "k", 1)
			time.Sleep(time.Millisecond)
		}
		if res.Source != hybridlimit.SourceLease || l.Stats().Held == 0 {
			t.Fatalf("the key has no lease: %+v, %+v", res, l.Stats())
		}
		time.Sleep(5 * time.Second)
		if res := ask(t, l, "k", 1); res.Source != hybridlimit.SourceRedis {
			t.Errorf("after a pause longer than any lease: %+v, want a question to Redis", res)
		}
	})
}

// A sync that is due long after the last call loads the word with the ticker
// stopped. Nothing voids that word but the ticker, so the sync starts it.
func TestAWordLoadedByALateSyncExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l := newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(1, 10*time.Second, 20), hybrid.Config{
			Overshoot: 1, SyncInterval: time.Second, SyncEvery: 1000,
		})
		time.Sleep(2 * time.Second)
		ask(t, l, "k", 16) // Redis
		for range 4 {      // credit
			ask(t, l, "k", 1)
		}
		if s := l.Stats(); s.Owed == 0 {
			t.Fatalf("nothing is owed, so that no sync is due: %+v", s)
		}
		link.Pause()
		time.Sleep(30 * time.Second)
		if res := ask(t, l, "k", 1); res.Source == hybridlimit.SourceDenyCache {
			t.Errorf("30 s later, of which 10 sufficed for a unit: %+v", res)
		}
		link.Resume()
	})
}
