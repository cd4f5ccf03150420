package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/spend"
)

// workerEnv in the environment makes this program a worker.
const workerEnv = "HYBRIDLIMIT_CHAOS_WORKER"

// limiterName is the limiter that all workers share; the prefix is the default.
const limiterName = "chaos"

// neighbourEvery is the time between two calls to other limiters of the hub.
const neighbourEvery = 25 * time.Millisecond

// worker is one client process: a limiter under paced load.
type worker struct {
	spec    spec
	journal *journal
	rdb     redis.UniversalClient
	limiter *hybrid.Limiter
	views   map[string]*hybrid.Limiter // of the classes; "": the limiter
	beside  *neighbours.Set            // the other limiters of the hub
	local   *local.Limiter             // of the canary of latency
	failed  atomic.Pointer[string]     // the first error of a decision
	stop    func()                     // ends the load
	begun   atomic.Int64               // calls of the library to Redis
	flying  atomic.Int64               // the part of them without an answer

	goroutines int    // before the limiter was made
	heap       uint64 // likewise
}

// isWorker runs this process as a worker, and exits, if it was started as one.
func isWorker() {
	if os.Getenv(workerEnv) == "" {
		return
	}
	if err := workerMain(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// workerMain obeys orders until its input ends, which it does when the runner has ended.
func workerMain(in io.Reader, out io.Writer) error {
	redis.SetLogger(&logging.VoidLogger{}) // failed dials are expected
	orders, reports := json.NewDecoder(in), json.NewEncoder(out)
	var s spec
	if err := orders.Decode(&s); err != nil {
		return err
	}
	journal, err := openJournal(s.History)
	if err != nil {
		return err
	}
	obey := (&worker{spec: s, journal: journal}).obey
	if s.InFlight {
		obey = (&flight{spec: s, journal: journal}).obey
	}
	if s.Region != nil {
		obey = (&resident{spec: s, journal: journal}).obey
	}
	for o := orderOpen; ; {
		r, err := obey(o)
		if err != nil {
			r.Err = err.Error()
		}
		if err := reports.Encode(r); err != nil {
			return err
		}
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// open makes the limiter.
func (w *worker) open() (err error) {
	// The canary starts before the first measurement, so that its memory does not count as growth.
	go w.canary()
	if w.local, err = local.New(hybridlimit.PerSecond(1000), local.Config{}); err != nil {
		return err
	}
	w.heap, w.goroutines = heapInUse(), runtime.NumGoroutine()
	w.rdb = w.spec.client()
	w.rdb.AddHook(syncHook{w})
	first := w.spec.Load.Streams[0]
	w.limiter, err = hybrid.New(w.rdb, first.limit(), hybrid.Config{
		Name: limiterName, Mode: w.spec.Mode, Classes: w.spec.Load.Classes,
		LimitFor: func(key string) hybridlimit.Limit { return w.spec.Load.of(key).limit() },
		Split:    func(key string) int { return w.spec.Load.of(key).Split },
		Hub: hybrid.HubConfig{
			FleetSize: w.spec.FleetSize, Functions: w.spec.Functions, Logger: slog.New(slog.DiscardHandler),
			Breaker: breaker.Config{OnChange: func(c breaker.Change) {
				w.journal.write(record{
					kind: recordBreaker, key: uint16(c.From), units: int32(c.To), begin: w.journal.clock.now(),
				})
			}},
		},
	})
	if err != nil {
		return err
	}
	w.views = map[string]*hybrid.Limiter{"": w.limiter}
	for _, c := range w.spec.Load.Classes {
		if w.views[c.Name], err = w.limiter.Class(c.Name); err != nil {
			return err
		}
	}
	if w.beside, err = neighbours.Add(w.limiter.Hub(), uint64(os.Getpid())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// On a busy machine, Redis may not have answered in the time that Ready waits.
	return until(ctx, patience, "the limiter is ready", func() bool { return w.limiter.Ready(ctx) == nil })
}

// client returns a client with the defaults of go-redis, except that it dials the proxies.
func (s spec) client() redis.UniversalClient {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy, ok := s.Dial[addr]; ok {
			addr = proxy
		}
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	}
	o := &redis.UniversalOptions{
		Addrs: s.Addrs, Dialer: dial, IsClusterMode: s.Topology == topologyCluster,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.Topology == topologySentinel {
		o.MasterName = sentinelMaster
	}
	return redis.NewUniversalClient(o)
}

func (w *worker) obey(o order) (report, error) {
	switch o {
	case orderOpen:
		if err := w.open(); err != nil {
			return report{}, err
		}
	case orderStart:
		w.start()
	case orderStop:
		w.halt()
	case orderBooks:
		return w.books()
	case orderBaseline:
		r := w.report()
		r.Heap = heapInUse()
		return r, nil
	case orderPause:
		key := w.spec.Load.Streams[0].key(0)
		if err := spend.Pause(context.Background(), w.limiter, key, time.Now().Add(pausedFor)); err != nil {
			return report{}, err
		}
	case orderShutdown:
		return w.shutdown(), nil
	}
	return w.report(), nil
}

// books returns the report with the units in hand by key. The calls to Redis are counted first, so that a call that
// begins meanwhile shows in the next report.
func (w *worker) books() (report, error) {
	begun, flying := w.begun.Load(), w.flying.Load()
	r := w.report()
	r.Syncs, r.Flying, r.Held = begun, flying, map[string]int64{}
	for j, s := range w.spec.Load.Streams {
		if w.spec.Load.first(uint8(j)) != uint8(j) {
			continue // these keys are counted already
		}
		for i := range s.Keys {
			for _, view := range w.views {
				in, err := view.Inspect(context.Background(), s.key(i))
				if err != nil {
					return r, err
				}
				if in.Leased > 0 {
					r.Held[s.key(i)] += in.Leased
				}
			}
		}
	}
	return r, nil
}

// report returns the state of the worker, with the counts of all classes together. The heap is measured only on
// request.
func (w *worker) report() report {
	r := report{
		Stats: w.limiter.Stats(), Hub: w.limiter.Hub().Stats(), Beside: w.beside.Report(),
		Goroutines: runtime.NumGoroutine(), Before: w.goroutines, HeapBefore: w.heap,
	}
	for _, c := range w.spec.Load.Classes {
		neighbours.AddStats(&r.Stats, w.views[c.Name].Stats())
	}
	if failed := w.failed.Load(); failed != nil {
		r.Failed = *failed
	}
	return r
}

// shutdown settles and closes, and waits until go-redis has ended its goroutines.
func (w *worker) shutdown() report {
	w.halt()
	w.beside.Land()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := w.limiter.Shutdown(ctx)
	r := w.report()
	if err != nil {
		r.Unsettled = err.Error()
	}
	w.rdb.Close()
	w.limiter, w.views, w.beside, w.rdb = nil, nil, nil, nil
	for range 200 {
		if heapInUse(); runtime.NumGoroutine() <= w.goroutines {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if r.Goroutines, r.Heap = runtime.NumGoroutine(), heapInUse(); r.Goroutines > r.Before {
		buf := make([]byte, 1<<16)
		r.Stacks = string(buf[:runtime.Stack(buf, true)])
	}
	return r
}

// heapInUse returns the bytes in use. The second collection frees the objects that finalizers released.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// canary records the delay that this machine adds to a sleep.
func (w *worker) canary() {
	const asleep = time.Millisecond
	for {
		from := time.Now()
		time.Sleep(asleep)
		if over := time.Since(from) - asleep; over > 200*time.Microsecond {
			w.journal.write(record{kind: recordNap, begin: w.journal.clock.at(from), took: asleep + over})
		}
	}
}

// start begins the load: some goroutines for each stream.
func (w *worker) start() {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i, s := range w.spec.Load.Streams {
		for g := range w.spec.Load.Goroutines {
			wg.Go(func() { w.pace(uint8(i), s, g, done) })
		}
	}
	stopNeighbours := repeat(neighbourEvery, func() { wg.Go(w.beside.Call) })
	w.stop = sync.OnceFunc(func() { close(done); stopNeighbours(); wg.Wait() })
}

func (w *worker) halt() {
	if w.stop != nil {
		w.stop()
	}
}

// pace makes the calls of one goroutine in groups, each group when it is due: in pairs, or in spikes. Groups that were
// missed while the machine stood still are left out. The last call of a group is warm: those before have loaded the
// processor's caches. Cold calls of a goroutine that wakes up rarely would mostly measure the caches.
func (w *worker) pace(i uint8, s stream, g int, done <-chan struct{}) {
	view, group := w.views[s.Class], make([]record, max(s.AtOnce, 2))
	goroutines := w.spec.Load.Goroutines
	every := time.Duration(len(group)) * time.Second * time.Duration(goroutines) / time.Duration(s.PerSecond)
	due := time.Now().Add(every * time.Duration(g) / time.Duration(goroutines))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	// The goroutines divide the keys among themselves, or take turns if there are few keys.
	for key := g % s.Keys; ; key = (key + goroutines) % s.Keys {
		select {
		case <-done:
			return
		case <-timer.C:
		}
		name := s.key(key)
		for n := range group {
			group[n] = w.call(view, name, s.Estimate)
			group[n].stream, group[n].key = i, uint16(key)
		}
		last := &group[len(group)-1]
		last.warm = s.Estimate == 0 // the promise for an open breaker is that of Allow, which allocates nothing
		w.timeLocal(name)           // warms it up
		last.beside = w.timeLocal(name)
		for _, r := range group {
			w.journal.write(r)
		}
		if due = due.Add(every); time.Since(due) > 50*time.Millisecond {
			due = time.Now()
		}
		timer.Reset(time.Until(due))
	}
}

// canaryCalls take about as long as a decision while the breaker is open: 1.1 and 1.2 µs. So the machine delays both
// equally often.
const canaryCalls = 15

// timeLocal times calls for the same key that need neither Redis nor a breaker.
func (w *worker) timeLocal(key string) time.Duration {
	var failed error
	from := time.Now()
	for range canaryCalls {
		if _, err := w.local.Allow(context.Background(), key); err != nil {
			failed = err
		}
	}
	took := time.Since(from)
	w.note(failed)
	return took
}

// call makes a call. With an estimate, its units are those that it has used in the end.
func (w *worker) call(view *hybrid.Limiter, key string, estimate int64) record {
	ctx, from := context.Background(), time.Now()
	var res hybridlimit.Result
	var err error
	var s *spend.Spend
	if estimate > 0 {
		s, res, err = spend.Begin(ctx, hybridlimit.Ask{Limiter: view, Key: key, N: estimate})
	} else {
		res, err = view.Allow(ctx, key)
	}
	took := time.Since(from)
	w.note(err)
	units := res.Granted
	if s != nil {
		used := rand.Int64N(estimate + 1)
		_, err = s.Use(ctx, 0, used)
		w.note(err)
		w.note(s.Settle(ctx))
		if res.Source != hybridlimit.SourceFallback { // which keeps the estimate
			units = used
		}
	}
	return record{
		kind: recordDecision, allowed: res.Allowed, failed: err != nil, source: res.Source,
		units: int32(units), begin: w.journal.clock.at(from), took: took,
	}
}

// note keeps the first error.
func (w *worker) note(err error) {
	if err != nil {
		text := err.Error()
		w.failed.CompareAndSwap(nil, &text)
	}
}

// syncHook records every call of the library to Redis.
type syncHook struct{ worker *worker }

func (h syncHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h syncHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h syncHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "evalsha" && name != "eval" && name != "fcall" {
			return next(ctx, cmd)
		}
		h.worker.begun.Add(1)
		h.worker.flying.Add(1)
		defer h.worker.flying.Add(-1)
		from := time.Now()
		err := next(ctx, cmd)
		h.worker.journal.write(record{
			kind: recordSync, failed: err != nil, begin: h.worker.journal.clock.at(from), took: time.Since(from),
		})
		return err
	}
}
