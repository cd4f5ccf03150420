package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/meter"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// world is one run. Its fields belong to the goroutine of Run unless they say
// otherwise.
type world struct {
	t     *testing.T
	s     Scenario // defaults filled in
	keys  []string
	loads []float64
	parts []float64 // of the load, per process at the start
	start time.Time // of the load

	bubble *redistest.Bubble // nil for the kinds without a Redis
	shared *shared           // CentralExact
	pushed *pushed           // CountAndPush
	ledger *ledger

	procs   []*process // every one that ever was
	newest  int        // the number of the next that joins
	hung    int        // how many faults hang Redis
	down    int        // how many have killed it
	ops     int64      // of the steady part
	steps   []step     // of Redis's clock, so far
	leaving sync.WaitGroup

	active   atomic.Pointer[[]Fault] // those that networks ask for
	step     atomic.Int64            // Redis's clock less the bubble's, ns
	stepped  atomic.Bool             // it has been told a time, and stands still until told the next
	messages atomic.Int64            // of the steady part
	beats    atomic.Int64
	tenths   []atomic.Int64 // messages

	// For tests of the checks.
	mutant func(hybridlimit.Result) hybridlimit.Result // changes what limiters say
	dawdle time.Duration                               // before each call returns
	extra  []event

	mu       sync.Mutex // guards violated and loose
	violated []string
	loose    bool // somebody ended with something on its way
}

func newWorld(t *testing.T, s Scenario) *world {
	w := &world{
		t: t, s: s, loads: s.Load.keyLoads(), parts: zipf(s.Processes, s.Load.Zipf),
		newest: s.Processes, tenths: make([]atomic.Int64, (s.Span+SampleEvery-1)/SampleEvery),
	}
	for i := range w.loads {
		w.keys = append(w.keys, fmt.Sprint("k", i))
	}
	w.active.Store(&[]Fault{})
	switch s.Kind {
	case CentralExact:
		w.shared = newShared(w)
	case CountAndPush:
		w.pushed = &pushed{w: w, levels: map[string]meter.Meter{}}
	default:
		redis.SetLogger(silence{}) // it reports every failed dial on stderr
		w.bubble = redistest.NewBubble(t)
		w.ledger = newLedger(w)
		w.bubble.Mini.ClockTTL(w.expires())
		w.bubble.Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			// Before the script, not before what it calls: by then miniredis
			// holds its lock.
			if cmd == "EVALSHA" || cmd == "EVAL" {
				w.setClock()
			}
			return false
		})
	}
	return w
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// fewKeys is from how many keys in Redis on nothing expires during a run:
// miniredis looks at all of them whenever the clock has moved.
const fewKeys = 300

// expires says whether keys in Redis expire while the fleet runs. Where they
// do not, a bucket is as full as if they had.
func (w *world) expires() bool {
	const tags = 16
	each := min(len(w.keys), tags)
	return len(w.keys)+each+each*w.s.Processes <= fewKeys
}

// setClock keeps Redis's clock stepped: miniredis can only be told a time, and
// then stands still there.
func (w *world) setClock() {
	if w.bubble != nil && w.stepped.Load() {
		w.bubble.Mini.SetTime(time.Now().Add(time.Duration(w.step.Load())))
	}
}

// step is one of Redis's clock.
type step struct{ at, by int64 } // ns since the load started, ns

// clock is the time of a moment since the load started, in ns since 1970. For
// windows and logs it is Redis's, as they are promised on that.
func (w *world) clock(since int64) int64 {
	at := w.start.UnixNano() + since
	if w.bubble == nil || !onRedisClock(w.s.Limit) {
		return at
	}
	for _, s := range w.steps {
		if s.at <= since {
			at += s.by
		}
	}
	return at
}

func onRedisClock(l hybridlimit.Limit) bool {
	switch l.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow, hybridlimit.AlgSlidingLog:
		return true
	}
	return false
}

// since is the time in ns since the load started, negative before.
func (w *world) since() int64 { return int64(time.Since(w.start)) }

// rng is a random source for one purpose.
func (w *world) rng(purpose, who, life int) *rand.Rand {
	return rand.New(rand.NewPCG(w.s.Seed, uint64(purpose)<<48|uint64(who)<<16|uint64(life)))
}

// Purposes.
const (
	forPhases = iota
	forCalls
	forNetwork
	forFaults
)

// sent counts a message.
func (w *world) sent(beat bool) {
	at := time.Duration(w.since())
	if at < 0 || at >= w.s.Span {
		return
	}
	if !beat {
		w.tenths[at/SampleEvery].Add(1)
	}
	switch {
	case at < w.s.Steady:
	case beat:
		w.beats.Add(1)
	default:
		w.messages.Add(1)
	}
}

const maxViolations = 20

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.violated) < maxViolations {
		w.violated = append(w.violated, fmt.Sprintf(format, args...))
	}
}

// poolFor is more connections than a process has callers: go-redis keeps timers
// of those who wait for one in a package variable, and the next bubble dies on
// them.
const poolFor = 4096

func (w *world) config() hybrid.Config {
	mode := map[Kind]hybrid.Mode{
		Auto: hybrid.ModeAuto, Strict: hybrid.ModeStrict, Deferred: hybrid.ModeDeferred, RedisExact: hybrid.ModeExact,
	}
	return hybrid.Config{
		Name: limiterName, Mode: mode[w.s.Kind], Overshoot: w.s.Overshoot, SyncInterval: w.s.Interval,
		MaxKeys: w.s.MaxKeys, Hub: hybrid.HubConfig{FleetSize: w.s.FleetSize, Logger: slog.New(slog.DiscardHandler)},
	}
}

const limiterName = "api"
