package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// This file has the rows of package region: three regions with a redis-server and two processes each. All use one key.

const (
	topologyRegions = "regions" // three servers that know nothing of each other
	regionProcs     = 2         // of a region
	regionEscrow    = 4         // the part of the burst that may be under way: 1/4, the default of region.Config
	farAway         = 40        // ms to another region, in each direction
	regionsSettle   = 8 * time.Second
	regionsMeasure  = 5 * time.Second
)

var (
	regionNames = []string{"a", "b", "c"}
	regionLimit = hybridlimit.PerSecond(900)
	// regionCalls has the calls per second of a process. Most of the load is in region a.
	regionCalls = []int{600, 30, 30}
)

// regionsRow is a fault under the load of regions.
type regionsRow struct {
	name    string
	hold    time.Duration
	apart   bool // no more units are lost than may be under way
	forgets int  // regions whose Redis loses its memory
	killed  int  // processes that are killed, of region a
	short   bool // go test plays it
	begin   act
}

// regionsRows are the rows of the page in order.
var regionsRows = []regionsRow{
	{name: "none"},
	{name: "region a cut off from b and c", short: true, apart: true, hold: 10 * time.Second, begin: regionsCutOff(0)},
	{name: "all regions cut off", apart: true, hold: 10 * time.Second, begin: regionsCutOff(0, 1)},
	{name: "replies of other regions lost after execution", hold: 4 * time.Second, begin: repliesOfOthersLost},
	{name: "Redis of b SIGSTOPped", short: true, hold: 5 * time.Second, begin: onNode(1, (*node).Pause, (*node).Resume)},
	{name: "Redis of b SIGKILLed, restart with data", begin: onNode(1, kill, restart)},
	{name: "Redis of b SIGKILLed, restart empty", short: true, forgets: 1, begin: onNode(1, kill, restartEmpty)},
	{name: "a process of a SIGKILLed", killed: 1, begin: func(_ context.Context, s *scene) (func() error, error) {
		return nil, s.clients[0].kill()
	}},
}

// plan returns the plan of the row.
func (r regionsRow) plan() plan {
	f := fault{name: r.name, begin: r.begin, hold: cmp.Or(r.hold, usualHold)}
	return plan{
		topology: topologyRegions, faults: []*fault{&f}, mode: hybrid.ModeAuto, clients: regionProcs * len(regionNames),
		hold: usualHold, seed: 1, regions: &r,
	}
}

// regionOf returns the region of a client.
func regionOf(client int) int { return client / regionProcs }

// regionalSpec is what a worker has in a region.
type regionalSpec struct {
	Here      string
	Others    map[string]string // address of the way to the Redis of each other region, by name
	PerSecond int               // calls
}

// addWays adds a proxy between each region and the Redis of each other one.
func (w *world) addWays() error {
	for from := range w.nodes {
		w.ways = append(w.ways, make([]*proxy, len(w.nodes)))
		for to, n := range w.nodes {
			if from == to {
				continue
			}
			p, err := startProxy(n.Addr())
			if err != nil {
				return err
			}
			w.ways[from][to] = p
			for _, direction := range []string{requests, replies} {
				if _, err := p.poison("latency", direction, map[string]int{"latency": farAway}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// settle gives a worker the addresses of its region.
func (w *world) settle(client int, s *spec) {
	here := regionOf(client)
	s.Addrs, s.FleetSize = s.Addrs[here:here+1], regionProcs
	s.Region = &regionalSpec{Here: regionNames[here], Others: map[string]string{}, PerSecond: regionCalls[here]}
	for to, p := range w.ways[here] {
		if p != nil {
			s.Region.Others[regionNames[to]] = p.Listen
		}
	}
}

// regionsCutOff silences all ways from and to some regions.
func regionsCutOff(regions ...int) act {
	return func(_ context.Context, s *scene) (func() error, error) {
		return s.silence([]string{requests, replies}, func(from, to int) bool {
			return slices.Contains(regions, from) || slices.Contains(regions, to)
		})
	}
}

// repliesOfOthersLost lets all regions ask all others, and loses the answers.
func repliesOfOthersLost(_ context.Context, s *scene) (func() error, error) {
	return s.silence([]string{replies}, func(int, int) bool { return true })
}

// silence loses what goes in some directions over the selected ways.
func (s *scene) silence(directions []string, is func(from, to int) bool) (func() error, error) {
	var cures []func() error
	for from, ways := range s.world.ways {
		for to, p := range ways {
			if p == nil || !is(from, to) {
				continue
			}
			for _, direction := range directions {
				cure, err := p.poison("timeout", direction, map[string]int{"timeout": 0})
				if err != nil {
					return backwards(cures), err
				}
				cures = append(cures, cure)
			}
		}
	}
	return backwards(cures), nil
}

// regionsRun has what the runner knows of a run with regions. Times are ns on the shared clock.
type regionsRun struct {
	row         regionsRow
	calm        [2]int64 // before the fault
	after       [2]int64 // long enough after it
	lost        [3]int64 // units that were lost on the way to each region, from the begin of the fault on
	credit      [3]int64 // C of the processes of each region
	failed      string   // the first error of a call
	cpu         float64  // load of the machine, 0 to 1
	unsettled   string   // the first error of a Shutdown
	moved, asks int64
	burst       int64 // of a region
}

// playRegions injects the fault while all regions use the key, and checks the calls.
func (s *scene) playRegions(ctx context.Context) (*verdict, error) {
	run := &regionsRun{row: *s.plan.regions}
	var before cpuTimes
	var lost [3]int64
	if err := inOrder(
		func() error {
			return until(ctx, patience, "every client knows of its region", func() bool {
				know, err := s.all(orderStats, func(r report) bool {
					return r.Stats.Fleet >= regionProcs && r.Stats.Credit > 0
				})
				return know && err == nil
			})
		},
		func() error { before = readCPU(); return s.burden(regionsSettle) },
		func() error { run.calm = s.measured(); return s.tellAll(orderStats) },
		func() error { lost = s.lostBetween(); return s.strike(ctx) },
		func() error { return s.tellAll(orderStart) },
		func() error {
			s.sleep(recovery + 3*time.Second)
			run.after, run.cpu = s.measured(), before.busy(readCPU())
			return s.tellAll(orderStop)
		},
		func() error { run.lost = s.lostBetween(); return s.tellAll(orderShutdown) },
	); err != nil {
		return nil, err
	}
	for i := range lost {
		run.lost[i] -= lost[i]
	}
	histories := make([][]record, len(s.clients))
	for i, c := range s.clients {
		var err error
		if histories[i], err = readHistory(c.history); err != nil {
			return nil, err
		}
		run.credit[regionOf(i)] = max(run.credit[regionOf(i)], c.last.Stats.Credit)
		run.burst = c.last.Burst
		run.moved, run.asks = run.moved+c.last.Region.Moved, run.asks+c.last.Region.Asks
		run.failed, run.unsettled = cmp.Or(run.failed, c.last.Failed), cmp.Or(run.unsettled, c.last.Unsettled)
	}
	return checkRegions(run, histories), nil
}

// measured waits for the time in which admissions are counted.
func (s *scene) measured() (span [2]int64) {
	span[0] = s.clock.now()
	s.sleep(regionsMeasure)
	span[1] = s.clock.now()
	return span
}

// lostBetween returns the units that each region has taken from others in vain, by the last reports.
func (s *scene) lostBetween() (units [3]int64) {
	for i, c := range s.clients {
		units[regionOf(i)] += c.last.Region.Late + c.last.Region.Lost
	}
	return units
}
