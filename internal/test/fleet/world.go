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
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// world is one run. Its fields belong to the goroutine of Run unless stated otherwise.
type world struct {
	Agenda // ns since the start of the load, from which on it runs

	t     *testing.T
	s     Scenario // defaults filled in
	keys  []string
	loads []float64
	parts []float64   // of the load, per process at the start
	plan  [][]arrival // the calls of each process at the start, if the fleet divides them
	start time.Time   // of the load

	bubble *redistest.Bubble // for the kinds without Redis, an idle one
	shared *shared           // CentralExact
	pushed *pushed           // CountAndPush
	ledger *ledger
	floors []float64 // of the classes of the calls that are not critical: one class, of Scenario.Floor; none without classes

	procs   []*process // all processes of the run, ended ones included
	newest  int        // number of the next process that joins
	hung    int        // number of active faults that hang Redis
	down    int        // number of active faults that killed Redis
	ops     int64      // of the steady part
	steps   []step     // steps of Redis's clock so far
	leaving sync.WaitGroup

	active   atomic.Pointer[[]Fault] // the faults that networks must apply
	step     atomic.Int64            // Redis's clock minus the bubble's, ns
	stepped  atomic.Bool             // Redis's clock was set, and stands still until it is set again
	messages atomic.Int64            // of the steady part
	beats    atomic.Int64
	tenths   []atomic.Int64 // messages

	// For tests of the checks.
	mutant  func(hybridlimit.Result) hybridlimit.Result // changes the results of limiters
	dawdle  time.Duration                               // before each call returns
	rewrite func(args []string)                         // changes the arguments of a script before Redis reads them

	mu       sync.Mutex // guards violated, loose and givenUp
	violated []string
	loose    bool  // a process ended while a sync was in flight
	givenUp  int64 // units that such processes count as lost
}

func newWorld(t *testing.T, s Scenario) *world {
	w := &world{
		t: t, s: s, loads: s.Load.keyLoads(), parts: zipf(s.Processes, s.Load.Zipf),
		newest: s.Processes, tenths: make([]atomic.Int64, (s.Span+SampleEvery-1)/SampleEvery),
	}
	for i := range w.loads {
		w.keys = append(w.keys, fmt.Sprint("k", i))
	}
	if s.Floor > 0 {
		w.floors = []float64{s.Floor}
	}
	w.plan = s.plan(w.rng(forPlan, 0, 0), w.loads, w.parts)
	w.active.Store(&[]Fault{})
	w.shared = &shared{w: w, limit: s.Limit, limiters: map[string]*central{}}
	w.pushed = &pushed{w: w, levels: map[string]meter.Meter{}}
	return w
}

// serve starts Redis, inside the bubble of the run.
func (w *world) serve() {
	redis.SetLogger(silence{}) // it reports each failed dial on stderr
	w.bubble = redistest.NewBubble(w.t)
	w.ledger = newLedger(w)
	w.bubble.Mini.ClockTTL(w.expires())
	w.bubble.SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
		// Before the script, not before the commands that it calls: by then miniredis holds its lock.
		if cmd == "EVALSHA" || cmd == "EVAL" {
			w.setClock()
			if w.s.forgets() {
				w.ledger.harvest()
			}
			if w.rewrite != nil {
				w.rewrite(args)
			}
		}
		return false
	})
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// fewKeys is the number of keys in Redis above which no key expires during a run: miniredis checks all keys whenever
// the clock has moved.
const fewKeys = 300

// expires reports whether keys in Redis expire while the fleet runs. A bucket that does not expire is as full as an
// expired one.
func (w *world) expires() bool {
	const tags = 16
	each := min(len(w.keys), tags)
	return len(w.keys)+each+each*w.s.Processes <= fewKeys
}

// setClock keeps Redis's clock stepped. miniredis only accepts a fixed time, and stands still there.
func (w *world) setClock() {
	if w.stepped.Load() {
		w.bubble.Mini.SetTime(time.Now().Add(time.Duration(w.step.Load())))
	}
}

// step is a step of Redis's clock.
type step struct{ at, by int64 } // ns since the load started, ns

// clock converts a moment since the start of the load to ns since 1970. For windows and logs this is Redis's time,
// because their promise is on Redis's clock.
func (w *world) clock(since int64) int64 {
	at := w.start.UnixNano() + since
	if !w.s.Kind.real() || !onRedisClock(w.s.Limit) {
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
	kind := algo.KindOf(l.Algorithm)
	return kind == algo.KindFixed || kind == algo.KindSliding || kind == algo.KindLog
}

// since returns the time in ns since the start of the load. It is negative before the start.
func (w *world) since() int64 { return int64(time.Since(w.start)) }

// rng returns a random source for one purpose.
func (w *world) rng(purpose, who, life int) *rand.Rand {
	return rand.New(rand.NewPCG(w.s.Seed, uint64(purpose)<<48|uint64(who)<<16|uint64(life)))
}

// The purposes.
const (
	forPhases = iota
	forCalls
	forNetwork
	forFaults
	forPlan
	forClasses
	forSpikes
	forNeighbours
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

// poolFor is larger than the number of callers of a process. go-redis keeps the timers of callers that wait for a
// connection in a package variable, and the next bubble would fail on them.
const poolFor = 4096

func (w *world) config() hybrid.Config {
	mode := map[Kind]hybrid.Mode{
		Auto: hybrid.ModeAuto, Strict: hybrid.ModeStrict, Deferred: hybrid.ModeDeferred, RedisExact: hybrid.ModeExact,
	}
	var classes []hybrid.Class
	for i, floor := range w.floors {
		classes = append(classes, hybrid.Class{Name: restOfCalls(i), Floor: floor})
	}
	return hybrid.Config{
		Classes: classes,
		Name:    limiterName, Mode: mode[w.s.Kind], Overshoot: w.s.Overshoot, SyncInterval: w.s.Interval,
		MaxKeys: w.s.MaxKeys, Hub: hybrid.HubConfig{FleetSize: w.s.FleetSize, Logger: slog.New(slog.DiscardHandler)},
	}
}

const limiterName = "api"

// restOfCalls returns the name of a class of the calls that are not critical: see world.floors.
func restOfCalls(i int) string { return fmt.Sprint("rest", i) }
