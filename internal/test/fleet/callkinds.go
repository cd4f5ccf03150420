package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// hubs is a fleet of hubs with one limiter each, and miniredis, in a bubble.
type hubs struct {
	w     *callWorld
	start time.Time
	fleet []*hybrid.ConcurrencyLimiter
	over  chan struct{} // closed at the end: calls that run are over
	calls sync.WaitGroup
}

// newHubs plans the start of the processes at different times, because events of one time have no fixed order.
func newHubs(t *testing.T, w *callWorld) *hubs {
	redis.SetLogger(silence{}) // it reports each failed dial on stderr
	h := &hubs{w: w, start: time.Now(), over: make(chan struct{})}
	w.Await = inBubble(h.start)
	b := redistest.NewBubble(t)
	b.Mini.ClockTTL(w.s.Keys <= fewKeys/3) // a key of permits has more keys in Redis than one of units
	for i := range w.s.Processes {
		w.At((int64(i)*second+w.rnd.Int64N(second))/int64(w.s.Processes), func() { h.launch(t, b.Link()) })
	}
	w.teach()
	return h
}

// launch starts a process.
func (h *hubs) launch(t *testing.T, link *redistest.MemLink) {
	s := h.w.s
	link.Latency(s.Latency/2, s.Latency-s.Latency/2)
	link.Script(h.count)
	hub, err := hybrid.NewHub(link.Client(nil), hybrid.HubConfig{FleetSize: s.Processes, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	l, err := hub.Concurrency(hybridlimit.Concurrent(s.Limit), hybrid.ConcurrencyConfig{Name: "calls", MaxWait: s.Wait})
	if err != nil {
		t.Fatal(err)
	}
	h.fleet = append(h.fleet, l)
}

func (h *hubs) now() int64 { return int64(time.Since(h.start)) }

// count is the verdict function of the links: it counts the messages of permits.
func (h *hubs) count(_ int, cmd []string) redistest.Verdict {
	if len(cmd) > 2 && (cmd[1] == lua.Permits.SHA || cmd[1] == lua.Permits.Source) {
		keys, _ := strconv.ParseInt(cmd[2], 10, 64) // of the tag's memory, and of each op
		h.w.ledger.sent(h.now(), keys-1, 0)
	}
	return redistest.Forward()
}

// acquire makes the whole call. It runs beside the agenda, so it takes the time from the bubble.
func (h *hubs) acquire(c *flight) {
	ledger := h.w.ledger
	h.calls.Go(func() {
		permit, res, err := h.fleet[c.process].Acquire(context.Background(), fmt.Sprint("k", c.key))
		if err != nil {
			panic(err)
		}
		ledger.decided(c, h.now(), res.Allowed)
		if !res.Allowed {
			return
		}
		select {
		case <-time.After(time.Duration(c.lasts)):
		case <-h.over:
		}
		ledger.ended(c)
		permit.Release()
	})
}

func (*hubs) release(*flight) {} // acquire does it

// renewEvery is the time between two renewals of a call: a third of the lease in bench/rivals.
const renewEvery = int64(10*time.Second) / 3

// sortedSet has the messages and the admissions of a sorted set in Redis: one message for each call, one for its end,
// and one for each renewal. The set decides at once, so no call waits for a place. The renewals of a call are counted
// at its end.
type sortedSet struct {
	w      *callWorld
	places []int64 // taken, by key
}

func (x *sortedSet) acquire(c *flight) {
	w := x.w
	w.ledger.sent(w.Now, 1, 0)
	w.exchange(func() func() {
		if x.places[c.key] >= w.s.Limit {
			return func() { w.deny(c) }
		}
		x.places[c.key]++
		return func() { w.admit(c) }
	})
}

func (x *sortedSet) release(c *flight) {
	x.w.ledger.sent(x.w.Now, 1, c.lasts/renewEvery)
	x.w.exchange(func() func() {
		x.places[c.key]--
		return nil
	})
}

// semaphores is one semaphore for each key, in one place. Its calls wait in order, and its messages take no time.
type semaphores struct {
	w    *callWorld
	keys []semaphore
}

type semaphore struct {
	taken   int64
	waiting []*flight
}

func (x *semaphores) acquire(c *flight) {
	w, k := x.w, &x.keys[c.key]
	if k.taken < w.s.Limit {
		k.taken++
		w.admit(c)
		return
	}
	k.waiting = append(k.waiting, c)
	w.After(int64(w.s.Wait), func() {
		if !c.done { // all that came before are decided
			k.waiting = k.waiting[1:]
			w.deny(c)
		}
	})
}

func (x *semaphores) release(c *flight) {
	k := &x.keys[c.key]
	if len(k.waiting) == 0 {
		k.taken--
		return
	}
	first := k.waiting[0]
	k.waiting = k.waiting[1:]
	x.w.admit(first)
}
