package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// plan describes a run.
type plan struct {
	topology string
	faults   []*fault // one fault, or several at random moments
	load     load
	clients  int
	hold     time.Duration // the duration of faults that have none of their own
	seed     uint64
	soak     time.Duration // duration of a soak, with one fault after the other; 0: no soak
	strictly bool          // check the promise about microseconds, too
	mode     hybrid.Mode
	inFlight bool        // the clients have calls in flight in place of the load
	above    int         // calls in flight above the permits that the guarantee allows
	regions  *regionsRow // the clients are in regions; nil: they share a Redis
}

func (p plan) name() string {
	if p.soak > 0 {
		return fmt.Sprintf("soak of %v", p.soak)
	}
	names := make([]string, len(p.faults))
	for i, f := range p.faults {
		names[i] = f.name
	}
	return strings.Join(names, " + ")
}

// title is the text that the flag -run matches.
func (p plan) title() string {
	if p.inFlight {
		return fmt.Sprintf("calls in flight: %s on %s", p.name(), p.topology)
	}
	if p.regions != nil {
		return "regions: " + p.name()
	}
	return fmt.Sprintf("%s on %s, %v", p.name(), p.topology, p.mode)
}

// usualLoad has a key with room for leases, keys with several times the permitted load, and keys that are used rarely.
var usualLoad = load{Goroutines: 2, Streams: []stream{
	{Prefix: "hot", Keys: 1, PerSecond: 200, Rate: 1000, Burst: 4000},
	{Prefix: "tight", Keys: 2, PerSecond: 200, Rate: 100, Burst: 400},
	{Prefix: "rare", Keys: 20, PerSecond: 60, Rate: 20, Burst: 200},
}}

// soakLoad is usualLoad from many goroutines, with so many keys that they take most of the memory.
var soakLoad = load{Goroutines: 16, Streams: append([]stream{
	{Prefix: "many", Keys: 5000, PerSecond: 400, Rate: 10, Burst: 100},
}, usualLoad.Streams...)}

// soakEvery is the interval at which a soak measures the heaps of clients.
const soakEvery = 5 * time.Second

// scene is a run in progress. Faults work on it.
type scene struct {
	plan    plan
	world   *world
	clients []*client
	dir     string
	clock   sharedClock
	flight  callsRun

	mu      sync.Mutex // guards the fields below
	rng     *rand.Rand // of the plan's seed
	allowed allowance  // sum over the faults so far
	struck  []int64    // when each fault began or ended
	paused  int64      // when the first key was paused; 0: it was not
	border  int64      // the end of a day on the clock of the server; 0: none
	lead    int64      // s, by which that clock was set ahead before the load
}

// draw returns a random number below n. Faults of a mix run in parallel, so each of them may draw at any time.
func (s *scene) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *scene) drawTime(limit time.Duration) time.Duration { return time.Duration(s.draw(int(limit))) }

func (s *scene) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.struck = append(s.struck, s.clock.now())
}

func (s *scene) allow(a allowance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = s.allowed.and(a)
}

// run plays a plan and checks the evidence. An error means that the run itself failed, so there is no verdict.
func run(ctx context.Context, p plan) (v *verdict, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", p.title(), err)
		}
	}()
	dir, err := os.MkdirTemp("", "hybridlimit-chaos-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := &scene{plan: p, dir: dir, rng: rand.New(rand.NewPCG(p.seed, 0)), clock: newSharedClock()}
	of := spec{FleetSize: p.clients, Mode: p.mode, Load: p.load, InFlight: p.inFlight}
	var env []string
	for _, f := range p.faults {
		if of.Functions = of.Functions || f.functions; f.clock {
			if env, err = movableClock(dir); err != nil {
				return nil, err
			}
		}
	}
	if s.world, err = startWorld(p.topology, filepath.Join(dir, "attic"), env...); err != nil {
		return nil, err
	}
	defer s.world.close()
	s.world.address(&of)
	s.clients = make([]*client, p.clients)
	defer func() {
		err = errors.Join(err, together(p.clients, func(i int) error {
			if s.clients[i] == nil {
				return nil // it was not started
			}
			return s.clients[i].end()
		}))
	}()
	if err := together(p.clients, func(i int) (err error) {
		own := of
		own.History = filepath.Join(dir, fmt.Sprint("client", i))
		if p.regions != nil {
			s.world.settle(i, &own)
		}
		s.clients[i], err = startClient(own)
		return err
	}); err != nil {
		return nil, err
	}
	if p.inFlight {
		return s.playCalls(ctx)
	}
	if p.regions != nil {
		return s.playRegions(ctx)
	}
	e, err := s.play(ctx)
	if err != nil {
		return nil, err
	}
	return check(e, p.strictly), nil
}

// play starts the load, injects the faults, stops the clients and collects the evidence.
func (s *scene) play(ctx context.Context) (*evidence, error) {
	e := &evidence{load: s.plan.load, single: s.plan.topology != topologyCluster, mode: s.plan.mode}
	var eternal []string
	lookForTTL := func() {
		for _, n := range s.world.nodes {
			eternal = append(eternal, n.eternal(ctx)...)
		}
	}
	stopLooking := repeat(500*time.Millisecond, lookForTTL)
	defer stopLooking()
	var before cpuTimes
	if err := inOrder(
		func() error { return s.prepare(ctx) },
		func() error { return s.acquainted(ctx) },
		func() error { return s.burden(calm) },
		func() error { return s.rest(ctx, e, quietBefore) },
		func() error { before = readCPU(); return s.burden(beforeFault) },
		func() error { e.hit = s.clock.now(); return s.strike(ctx) },
		func() error { return s.world.well(ctx) },
		func() error { e.over = s.clock.now(); return s.comeBack(ctx) },
		func() error {
			e.back, e.cpu = s.clock.now(), before.busy(readCPU())
			return s.rest(ctx, e, quietBack)
		},
		func() error { return s.burden(calm) },
		func() error { return s.rest(ctx, e, quietAfter) },
		func() error { return s.leasesBack(e) },
		func() error { return s.rest(ctx, e, quietAtRest) },
		func() error { return s.tellAll(orderShutdown) },
	); err != nil {
		return nil, err
	}
	stopLooking()
	lookForTTL()
	e.eternal = eternal
	return e, s.collect(e)
}

// prepare makes the world ready for the faults.
func (s *scene) prepare(ctx context.Context) (err error) {
	for _, f := range s.plan.faults {
		if f.prepare != nil {
			err = errors.Join(err, f.prepare(ctx, s))
		}
	}
	return err
}

// acquainted waits until every client knows of all.
func (s *scene) acquainted(ctx context.Context) error {
	return until(ctx, patience, "every client knows of all", func() bool {
		know, err := s.all(orderStats, func(r report) bool {
			return r.Stats.Fleet >= int64(len(s.clients)) && (r.Stats.Credit > 0 || s.plan.mode == hybrid.ModeStrict)
		})
		return know && err == nil
	})
}

func (s *scene) burden(d time.Duration) error {
	if err := s.tellAll(orderStart); err != nil {
		return err
	}
	s.sleep(d)
	return nil
}

// comeBack waits for the time in which clients must come back. On a busy machine it waits longer, until all breakers
// are closed. The check finds a client that has not come back.
func (s *scene) comeBack(ctx context.Context) error {
	s.sleep(recovery)
	for deadline := time.Now().Add(anyReturn - recovery); ; s.sleep(100 * time.Millisecond) {
		closed, err := s.all(orderStats, func(r report) bool { return r.Stats.Breaker == breaker.Closed })
		if err != nil || closed || time.Now().After(deadline) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// all gives an order to all live clients, and reports whether each report is so.
func (s *scene) all(o order, is func(report) bool) (bool, error) {
	others := make([]bool, len(s.clients))
	err := together(len(s.clients), func(i int) error {
		if s.clients[i].killed != 0 {
			return nil
		}
		r, err := s.clients[i].tell(o)
		others[i] = !is(r)
		return err
	})
	return !slices.Contains(others, true), err
}

func (s *scene) tellAll(o order) error {
	_, err := s.all(o, func(report) bool { return true })
	return err
}

// inOrder takes steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// together calls f for 0 to n-1, all at once.
func together(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// strike begins and ends the faults: a single fault, several at random moments so that they overlap, or one after the
// other in a soak.
func (s *scene) strike(ctx context.Context) error {
	if s.plan.soak > 0 {
		return s.soak(ctx)
	}
	// All moments are drawn before the first fault draws, so that one seed gives one plan.
	waits := make([]time.Duration, len(s.plan.faults))
	if len(waits) > 1 {
		for i := range waits {
			waits[i] = s.drawTime(s.plan.hold)
		}
	}
	return together(len(waits), func(i int) error {
		s.sleep(waits[i])
		return s.suffer(ctx, s.plan.faults[i], s.plan.hold)
	})
}

// soak plays random faults one after the other, with a few seconds in between. Meanwhile it measures the heaps of
// clients.
func (s *scene) soak(ctx context.Context) error {
	stop := repeat(soakEvery, func() {
		for _, c := range s.clients {
			if r, err := c.tell(orderBaseline); err == nil {
				c.heap = append(c.heap, r.Heap)
			}
		}
	})
	defer stop()
	for deadline := time.Now().Add(s.plan.soak); time.Now().Before(deadline); {
		f := s.plan.faults[s.draw(len(s.plan.faults))]
		if err := s.suffer(ctx, f, s.plan.hold/2+s.drawTime(s.plan.hold)); err != nil {
			return err
		}
		if err := s.world.well(ctx); err != nil {
			return err
		}
		s.sleep(time.Second + s.drawTime(3*time.Second))
	}
	return nil
}

// suffer plays one fault from begin to end. In a mix it may have to wait until another fault has ended.
func (s *scene) suffer(ctx context.Context, f *fault, hold time.Duration) error {
	s.allow(f.allowed)
	if len(s.plan.faults) > 1 {
		s.note()
		defer s.note()
	}
	var end func() error
	if f.begin != nil {
		if err := s.insist(ctx, func() (err error) { end, err = f.begin(ctx, s); return err }); err != nil {
			return err
		}
	}
	s.sleep(cmp.Or(f.hold, hold))
	if end == nil {
		return nil
	}
	return s.insist(ctx, end)
}

// insist calls f until it succeeds if faults are mixed, else once.
func (s *scene) insist(ctx context.Context, f func() error) (err error) {
	if len(s.plan.faults) == 1 {
		return f()
	}
	if late := until(ctx, patience, "a fault among others", func() bool { err = f(); return err == nil }); late != nil {
		return fmt.Errorf("%w: %w", late, err)
	}
	return nil
}

func (s *scene) sleep(d time.Duration) { <-time.After(d) }

// repeat calls f at intervals until the returned function is called.
func repeat(every time.Duration, f func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			f()
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

func (s *scene) collect(e *evidence) error {
	for _, c := range s.clients {
		history, err := readHistory(c.history)
		if err != nil {
			return err
		}
		e.clients = append(e.clients, witness{history: history, last: c.last, killed: c.killed != 0, heap: c.heap})
	}
	l, err := readLedger(s.world)
	if err != nil {
		return err
	}
	e.border = s.border
	e.sums, e.allowed, e.paused, e.struck = l.sum(), s.allowed, s.paused, slices.Sorted(slices.Values(s.struck))
	e.eternal = append(e.eternal, l.eternal...)
	e.lost = l.losses()
	if len(s.plan.faults) == 1 { // in a mix, a fault may have no effect
		if f := s.plan.faults[0]; f.proof != nil && !f.proof.shows(e) {
			return fmt.Errorf("%s did not happen: %s", f.name, f.proof.lacks)
		}
	}
	return nil
}
