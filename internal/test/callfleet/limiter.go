package callfleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// bubble is a fleet of hubs with one limiter each, and miniredis.
type bubble struct {
	s      Scenario
	start  time.Time
	ledger *ledger
	fleet  []*hybrid.ConcurrencyLimiter
	over   chan struct{} // closed at the end: calls that run are over
	calls  sync.WaitGroup
}

// fewKeys is the number of keys above which no key expires: miniredis looks at all keys whenever the clock has moved.
const fewKeys = 100

// runLimiter is Run for the kind Limiter.
func runLimiter(t *testing.T, s Scenario) (r Report) {
	t.Helper()
	redis.SetLogger(silence{}) // it reports each failed dial on stderr
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{s: s, start: time.Now(), ledger: newLedger(s), over: make(chan struct{})}
		mini := redistest.NewBubble(t)
		mini.Mini.ClockTTL(s.Keys <= fewKeys)
		rnd := rand.New(rand.NewPCG(s.Seed, 1))
		for i := range s.Processes { // at different times: events of one time have no fixed order
			b.sleep((int64(i)*second + rnd.Int64N(second)) / int64(s.Processes))
			b.fleet = append(b.fleet, b.launch(t, mini.Link()))
		}
		b.sleep(2 * second)
		for key := range s.Keys { // so that Redis learns each tag before the load
			b.come(&call{at: b.now(), key: key})
		}
		calls := newStream(s)
		for c, ok := calls.take(); ok; c, ok = calls.take() {
			b.sleep(c.at)
			b.come(c)
		}
		b.sleep(lead + int64(s.Span) + int64(s.Wait) + drain)
		close(b.over)
		b.calls.Wait()
		r = b.ledger.total()
	})
	return r
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (b *bubble) now() int64 { return int64(time.Since(b.start)) }

func (b *bubble) sleep(until int64) { time.Sleep(time.Duration(until - b.now())) }

// launch starts a process.
func (b *bubble) launch(t *testing.T, link *redistest.MemLink) *hybrid.ConcurrencyLimiter {
	link.Latency(b.s.Latency/2, b.s.Latency-b.s.Latency/2)
	link.Script(b.count)
	rdb := link.Client(func(o *redis.Options) {
		// go-redis retries dials in the background, and no goroutine may outlive the bubble. The pool is larger than
		// the number of tags.
		o.DialerRetries, o.PoolSize = 1, 64
	})
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{FleetSize: b.s.Processes, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	l, err := hub.Concurrency(hybridlimit.Concurrent(b.s.Limit), hybrid.ConcurrencyConfig{Name: "calls", MaxWait: b.s.Wait})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// count is the verdict function of the links: it counts the messages of permits.
func (b *bubble) count(_ int, cmd []string) redistest.Verdict {
	if len(cmd) > 2 && (cmd[1] == lua.Permits.SHA || cmd[1] == lua.Permits.Source) {
		keys, _ := strconv.Atoi(cmd[2]) // of the tag's memory, and of each op
		b.ledger.sent(b.now(), keys-1)
	}
	return redistest.Forward()
}

// come lets a call come.
func (b *bubble) come(c *call) {
	b.ledger.came(c)
	b.calls.Go(func() {
		permit, res, err := b.fleet[c.process].Acquire(context.Background(), fmt.Sprint("k", c.key))
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			b.ledger.denied(c)
			return
		}
		b.ledger.admitted(c, b.now())
		timer := time.NewTimer(time.Duration(c.lasts))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-b.over:
		}
		b.ledger.ended(c)
		permit.Release()
	})
}
