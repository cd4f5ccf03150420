package main

import (
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

// where returns the topology and the mode.
func (p plan) where() string { return p.topology + ", " + p.mode.String() }

// usualLoad has a key with room for leases, keys with several times the
// permitted load, and keys that are used rarely.
var usualLoad = load{Goroutines: 2, Streams: []stream{
	{Prefix: "hot", Keys: 1, PerSecond: 200, Rate: 1000, Burst: 4000},
	{Prefix: "tight", Keys: 2, PerSecond: 200, Rate: 100, Burst: 400},
	{Prefix: "rare", Keys: 20, PerSecond: 60, Rate: 20, Burst: 200},
}}

// scene is a run in progress. Faults work on it.
type scene struct {
	plan    plan
	world   *world
	clients []*client
	dir     string
	clock   sharedClock

	mu      sync.Mutex // guards the fields below
	rng     *rand.Rand // of the plan's seed
	allowed allowance  // sum over the faults so far
	struck  []int64    // when each fault began or ended
}

// draw returns a random number below n. Faults of a mix run in parallel, so each
// of them may draw at any time.
func (s *scene) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// drawTime returns a random time below limit.
func (s *scene) drawTime(limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(limit)))
}

// note records the begin or the end of a fault.
func (s *scene) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.struck = append(s.struck, s.clock.now())
}

// allow adds the allowance of a fault.
func (s *scene) allow(a allowance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = s.allowed.and(a)
}

// outcome is a finished run.
type outcome struct {
	plan     plan
	evidence *evidence
	verdict  *verdict
}

// run plays a plan and checks the evidence. An error means that the run itself
// failed, so there is no verdict.
func run(ctx context.Context, p plan) (out *outcome, err error) {
	dir, err := os.MkdirTemp("", "hybridlimit-chaos-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := &scene{plan: p, dir: dir, rng: rand.New(rand.NewPCG(p.seed, 0)), clock: newSharedClock()}
	var env []string
	functions := false
	for _, f := range p.faults {
		more, err := f.env(dir)
		if err != nil {
			return nil, err
		}
		env = append(env, more...)
		functions = functions || f.functions
	}
	attic := filepath.Join(dir, "attic")
	if s.world, err = startWorld(p.topology, attic, env...); err != nil {
		return nil, err
	}
	defer s.world.close()
	defer func() {
		for _, c := range s.clients {
			if c != nil {
				c.end()
			}
		}
	}()
	s.clients = make([]*client, p.clients)
	if err := together(p.clients, func(i int) (err error) {
		s.clients[i], err = startClient(spec{
			Topology: p.topology, Addrs: s.world.addrs(), Dial: s.world.dial(), FleetSize: p.clients,
			Mode: p.mode, Functions: functions, Load: p.load, History: filepath.Join(dir, fmt.Sprint("client", i)),
		})
		return err
	}); err != nil {
		return nil, err
	}
	e, err := s.play(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", p.name(), p.where(), err)
	}
	return &outcome{p, e, check(e, p.strictly)}, nil
}

// play starts the load, injects the faults, stops the clients and collects the
// evidence.
func (s *scene) play(ctx context.Context) (*evidence, error) {
	if err := until(ctx, patience, "every client knows of all", func() bool {
		for _, c := range s.clients {
			if r, err := c.tell(orderStats); err != nil || r.Stats.Fleet < int64(len(s.clients)) || r.Stats.Credit == 0 && s.plan.mode != hybrid.ModeStrict {
				return false
			}
		}
		return true
	}); err != nil {
		return nil, err
	}
	e := &evidence{load: s.plan.load, single: s.plan.topology != topologyCluster, mode: s.plan.mode}
	ttl := s.watchTTL(ctx)
	if err := s.burden(calm); err != nil {
		return nil, err
	}
	if err := s.rest(ctx, e, quietBefore); err != nil {
		return nil, err
	}
	before := readCPU()
	if err := s.burden(beforeFault); err != nil {
		return nil, err
	}
	e.hit = s.clock.now()
	if err := s.strike(ctx); err != nil {
		return nil, err
	}
	if err := s.world.well(ctx); err != nil {
		return nil, err
	}
	e.over = s.clock.now()
	if err := s.comeBack(ctx); err != nil {
		return nil, err
	}
	e.back = s.clock.now()
	e.cpu = before.busy(readCPU())
	if err := s.rest(ctx, e, quietBack); err != nil {
		return nil, err
	}
	if err := s.burden(calm); err != nil {
		return nil, err
	}
	if err := s.rest(ctx, e, quietAfter); err != nil {
		return nil, err
	}
	if err := s.leasesBack(e); err != nil {
		return nil, err
	}
	if err := s.rest(ctx, e, quietAtRest); err != nil {
		return nil, err
	}
	if err := s.tellAll(orderShutdown); err != nil {
		return nil, err
	}
	e.eternal = ttl()
	return e, s.collect(e)
}

// burden starts the load, and waits.
func (s *scene) burden(d time.Duration) error {
	if err := s.tellAll(orderStart); err != nil {
		return err
	}
	s.sleep(d)
	return nil
}

// comeBack waits for the time in which clients must come back. On a busy
// machine it waits longer, until all breakers are closed. The check finds a
// client that has not come back.
func (s *scene) comeBack(ctx context.Context) error {
	s.sleep(recovery)
	for range int((anyReturn - recovery) / (100 * time.Millisecond)) {
		open := false
		for _, c := range s.clients {
			if c.killed {
				continue
			}
			r, err := c.tell(orderStats)
			if err != nil {
				return err
			}
			open = open || r.Stats.Breaker != breaker.Closed
		}
		if !open {
			break
		}
		s.sleep(100 * time.Millisecond)
	}
	return ctx.Err()
}

// tellAll gives an order to all live clients.
func (s *scene) tellAll(o order) error {
	return together(len(s.clients), func(i int) error {
		if s.clients[i].killed {
			return nil
		}
		_, err := s.clients[i].tell(o)
		return err
	})
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

// strike begins and ends the faults: a single fault, several at random moments
// so that they overlap, or one after the other in a soak.
func (s *scene) strike(ctx context.Context) error {
	if s.plan.soak > 0 {
		return s.soak(ctx)
	}
	// All moments are drawn before the first fault draws, so that one seed gives
	// one plan.
	waits := make([]time.Duration, len(s.plan.faults))
	if len(waits) > 1 {
		for i := range waits {
			waits[i] = s.drawTime(s.plan.hold)
		}
	}
	errs := make([]error, len(s.plan.faults))
	var wg sync.WaitGroup
	for i, f := range s.plan.faults {
		wg.Go(func() {
			s.sleep(waits[i])
			errs[i] = s.suffer(ctx, f, s.plan.hold)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// suffer plays one fault from begin to end. In a mix it may have to wait until
// another fault has ended.
func (s *scene) suffer(ctx context.Context, f *fault, hold time.Duration) error {
	s.allow(f.allowed)
	if len(s.plan.faults) > 1 {
		s.note()
		defer s.note()
	}
	if f.begin == nil {
		s.sleep(hold)
		return nil
	}
	var end func() error
	if err := s.insist(ctx, func() (err error) { end, err = f.begin(ctx, s); return err }); err != nil {
		return err
	}
	if f.hold > 0 {
		hold = f.hold
	}
	s.sleep(hold)
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

// collect reads the files of clients and servers.
func (s *scene) collect(e *evidence) error {
	for _, c := range s.clients {
		history, err := readHistory(c.history)
		if err != nil {
			return err
		}
		e.clients = append(e.clients, witness{history: history, last: c.last, killed: c.killed, heap: c.heap})
	}
	l, err := readLedger(s.world)
	if err != nil {
		return err
	}
	e.sums, e.allowed, e.struck = l.sum(), s.allowed, slices.Sorted(slices.Values(s.struck))
	e.eternal = append(e.eternal, l.eternal...)
	for _, f := range s.plan.faults {
		if f.proof == nil || len(s.plan.faults) > 1 {
			continue // in a mix, a fault may have no effect
		}
		if why := f.proof(e); why != "" {
			return fmt.Errorf("%s did not happen: %s", f.name, why)
		}
	}
	return nil
}
