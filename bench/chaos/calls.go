package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/lua"
)

// callsRow is a fault under the load of calls in flight.
type callsRow struct {
	name  string // that of a fault of Redis or of the network, if begin is nil
	on    string // topology; empty: single
	hold  time.Duration
	above int  // calls above the permits that the guarantee allows
	short bool // go test plays it
	begin act
}

// No more than the search on the engine has found: see decision 0051.
const (
	aboveByEviction = 9
	aboveByFailover = 5
)

// callsRows are the rows of the page in order.
var callsRows = []callsRow{
	{name: "none", short: true, hold: 4 * time.Second},
	{name: "process SIGKILLed", short: true, hold: 5 * time.Second, begin: killedProcess},
	{name: "process SIGSTOPped for 5 s", short: true, hold: 5 * time.Second, begin: stoppedProcess},
	{name: "process SIGSTOPped for 30 s", hold: 30 * time.Second, begin: stoppedProcess},
	{name: "12 permits, 5, 12", short: true, hold: 5 * time.Second, begin: fewerPermits},
	{name: "FLUSHALL", short: true},
	{name: "eviction of the key, five times", above: aboveByEviction, begin: evictedCalls},
	{name: "SIGKILL, restart with data", hold: 4 * time.Second},
	{name: "SIGKILL, restart empty", hold: 4 * time.Second, short: true},
	{name: "SIGSTOP 60 s", hold: time.Minute, begin: stopped},
	{name: "LOADING"},
	{name: "clock +1 h", hold: time.Second},
	{name: "clock -1 h", hold: time.Second},
	{name: "SCRIPT FLUSH", hold: 2 * time.Second},
	{name: "CLIENT KILL"},
	{name: "latency 100 ms ± 50", hold: 4 * time.Second},
	{name: "replies lost after execution", hold: 4 * time.Second, short: true},
	{name: "requests lost", hold: 4 * time.Second},
	{name: "half-open TCP, no replies", hold: 4 * time.Second},
	{name: "master SIGKILLed, replica promoted", on: topologySentinel, above: aboveByFailover},
	{name: "failover with lost acknowledged writes", on: topologySentinel, above: aboveByFailover},
	{name: "master SIGKILLed, replica promoted", on: topologyCluster, above: aboveByFailover},
}

// plan returns the plan of the row.
func (r callsRow) plan() (plan, error) {
	f := fault{name: r.name, begin: r.begin}
	if f.begin == nil {
		named, err := faultNamed(r.name)
		if err != nil {
			return plan{}, err
		}
		f = *named
	}
	f.hold = cmp.Or(r.hold, f.hold)
	return plan{
		topology: cmp.Or(r.on, topologySingle), faults: []*fault{&f}, mode: hybrid.ModeAuto, clients: callsProcs,
		hold: time.Second, seed: 1, inFlight: true, above: r.above,
	}, nil
}

// playCalls injects the fault while calls are in flight, and checks the calls.
func (s *scene) playCalls(ctx context.Context) (*verdict, error) {
	s.flight.above = s.plan.above
	var before cpuTimes
	var over int64
	if err := inOrder(
		func() error { return s.served(ctx, 1) },
		func() error { before = readCPU(); return s.strike(ctx) },
		func() error { return s.world.well(ctx) },
		func() error { over = s.clock.now(); return s.served(ctx, over) },
		func() error {
			s.flight.back = time.Duration(s.clock.now() - over)
			s.sleep(2 * time.Second)
			s.flight.cpu = before.busy(readCPU())
			return s.tellAll(orderShutdown)
		},
	); err != nil {
		return nil, err
	}
	var all []span
	for i, c := range s.clients {
		history, err := readHistory(c.history)
		if err != nil {
			return nil, err
		}
		all = append(all, spansOf(i, history, cmp.Or(c.killed, s.clock.now()))...)
	}
	return checkCalls(&s.flight, all), nil
}

// served waits until each living process has begun a call with a permit of Redis at or after a time.
func (s *scene) served(ctx context.Context, since int64) error {
	return until(ctx, time.Minute, "each process runs a call with a permit of Redis", func() bool {
		s.sleep(10 * time.Millisecond)
		served, err := s.all(orderStats, func(r report) bool { return r.Served >= since })
		return served && err == nil
	})
}

// killedProcess kills process 0, and its calls with it.
func killedProcess(_ context.Context, s *scene) (func() error, error) {
	err := s.clients[0].kill()
	s.flight.killed = s.clients[0].killed
	return nil, err
}

// stoppedProcess stops process 0 for a time.
func stoppedProcess(_ context.Context, s *scene) (func() error, error) {
	err := s.clients[0].pause()
	s.flight.stopped = s.clock.now()
	return func() error {
		s.flight.resumed = s.clock.now()
		return s.clients[0].resume()
	}, err
}

// fewerPermits gives the fleet a lower limit, and then the old one. The longest calls last three seconds, so the lower
// limit holds after that.
func fewerPermits(_ context.Context, s *scene) (func() error, error) {
	err := s.tellAll(orderFewer)
	s.flight.fewer[0] = s.clock.now() + int64(3500*time.Millisecond)
	return func() error {
		s.flight.fewer[1] = s.clock.now()
		err := s.tellAll(orderUsual)
		s.sleep(2 * time.Second)
		return err
	}, err
}

// evictedCalls deletes the key of the permits as an eviction does, five times. Redis learns after each one, and has no
// key until a process tells its holding.
func evictedCalls(ctx context.Context, s *scene) (func() error, error) {
	rdb, names := s.world.nodes[0].admin, lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	key := names.Held(names.Tag("k"), callsName, "k")
	for range 5 {
		var failed error
		late := until(ctx, 20*time.Second, "Redis has the key of the permits", func() bool {
			s.sleep(10 * time.Millisecond)
			n, err := rdb.Del(ctx, key).Result()
			failed = err
			return err != nil || n == 1
		})
		if late != nil || failed != nil {
			return nil, errors.Join(late, failed)
		}
		s.sleep(500 * time.Millisecond)
	}
	return nil, nil
}
