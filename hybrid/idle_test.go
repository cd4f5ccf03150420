package hybrid_test

import (
	"math"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// tickers returns the number of goroutines that advance an epoch.
func tickers() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "clock.(*Clock).run(")
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
		if tickers() > before {
			t.Error("a ticker runs, though 1000 calls a second can read the time")
		}
		for range 1000 {
			ask(t, l, "k", 1)
			time.Sleep(100 * time.Microsecond)
		}
		if tickers() == before {
			t.Error("no ticker runs with 10 000 calls a second")
		}
		time.Sleep(10 * time.Second) // owed units are paid, leases expire
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

// wakes returns how often goroutines of this program were woken. The runtime
// samples one wake in eight.
func wakes() (sum uint64) {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	for _, n := range s[0].Value.Float64Histogram().Counts {
		sum += n
	}
	return sum
}

// TestNothingWakesWhileIdle checks that with keys in memory and no traffic
// there is one goroutine, the heartbeat's, and that nothing else wakes. It is
// not parallel, because wakes counts for the whole program.
func TestNothingWakesWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(1000), hybrid.Config{})
		keys := keysOf("k", 200)
		use := func() {
			for _, k := range keys {
				ask(t, l, k, 1)
			}
		}
		use()
		time.Sleep(2100 * time.Millisecond) // N is known: from now on keys owe, and have leases
		for range 3 {
			use()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Second) // owed units are paid, leases expire
		if got := ours(); len(got) != 1 || !strings.Contains(got[0], "(*Heart).Run(") {
			t.Errorf("%d goroutines of the library, want that of the heartbeat:\n%s", len(got), strings.Join(got, "\n\n"))
		}
		const seconds = 60
		// The garbage collector wakes now and then, too. So the least of five
		// intervals counts: a regular wake is in each of them.
		idle := uint64(math.MaxUint64)
		for range 5 {
			before := wakes()
			time.Sleep(seconds * time.Second)
			idle = min(idle, wakes()-before)
		}
		// The same time with calls, so that the count of wakes is known to work.
		before := wakes()
		for range seconds * 200 {
			ask(t, l, keys[0], 1)
			time.Sleep(5 * time.Millisecond)
		}
		busy := wakes() - before
		// A heartbeat wakes its goroutine, and those of the connection and of
		// the stand-in for Redis: some tens. A ticker alone would be 200 a
		// second.
		const most = seconds * 50 / 8
		if idle > most || busy <= 2*most {
			t.Errorf("%d wakes sampled in %d s without traffic, want at most %d; %d with traffic, want more than twice that", idle, seconds, most, busy)
		}
		if s := l.Stats(); s.Keys != len(keys) {
			t.Errorf("%d keys in memory", s.Keys)
		}
	})
}

// TestNothingStaleIsSpentAfterAPause checks that a budget is not spent after
// the ticker has stopped and started again: its lease or credit no longer
// holds.
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
			t.Errorf("after a pause longer than any lease: %+v, want a decision by Redis", res)
		}
	})
}

// TestAWordLoadedByALateSyncExpires checks a sync that is due long after the
// last call, and sets a budget while the ticker is stopped. Only the ticker
// voids that budget, so the sync must start it.
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
			t.Fatalf("nothing is owed, so no sync is due: %+v", s)
		}
		link.Pause()
		time.Sleep(30 * time.Second)
		if res := ask(t, l, "k", 1); res.Source == hybridlimit.SourceDenyCache {
			t.Errorf("denied from memory after 30 s, although a unit refills in 10 s: %+v", res)
		}
		link.Resume()
	})
}
