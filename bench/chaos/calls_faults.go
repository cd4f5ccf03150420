package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hybridlimit/hybridlimit/lua"
)

// callsRow is a fault under the load of calls in flight.
type callsRow struct {
	name  string // that of a fault of Redis, if play is nil
	label string // on the page; empty: name
	on    string // topology; empty: single
	hold  time.Duration
	above int // calls above the permits that the guarantee allows
	short bool
	play  func(r *callsRun) error
}

// No more than the search on the engine has found: see decision 0051.
const (
	aboveByEviction = 9
	aboveByFailover = 5
	callsFewer      = 5 // the lower limit of the row with another limit
)

// callsRows are the rows of the page in order. Those with `short` are played by go test.
var callsRows = []callsRow{
	{name: "none", short: true, play: func(*callsRun) error { time.Sleep(4 * time.Second); return nil }},
	{name: "process SIGKILLed", short: true, play: func(r *callsRun) error {
		r.procs[0].kill()
		r.killed = r.procs[0].ended
		time.Sleep(5 * time.Second)
		return nil
	}},
	{name: "process SIGSTOPped for 5 s", short: true, play: stoppedProcess(5 * time.Second)},
	{name: "process SIGSTOPped for 30 s", play: stoppedProcess(30 * time.Second)},
	{name: "12 permits, 5, 12", short: true, play: fewerPermits},
	{name: "FLUSHALL", short: true},
	{name: "eviction of the key, five times", above: aboveByEviction, play: evictedCalls},
	{name: "SIGKILL, restart with data", hold: 4 * time.Second},
	{name: "SIGKILL, restart empty", hold: 4 * time.Second, short: true},
	{name: "SIGSTOP 30 s", label: "SIGSTOP 60 s", hold: time.Minute},
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

func (r callsRow) topology() string {
	if r.on == "" {
		return topologySingle
	}
	return r.on
}

func (r callsRow) title() string {
	if r.label != "" {
		return r.label
	}
	return r.name
}

// where is the text that the flag -run matches.
func (r callsRow) where() string { return "calls in flight: " + r.title() + " on " + r.topology() }

// callsRun is a run of a row. Times are ns of the clock that all processes of a machine share.
type callsRun struct {
	row     callsRow
	scene   *scene
	procs   []*caller
	killed  int64    // when process 0 was killed
	stopped int64    // when process 0 was stopped
	resumed int64    // when it ran again
	fewer   [2]int64 // from when to when the lower limit held everywhere
	back    time.Duration
	cpu     float64
}

// callsOutcome is a finished run.
type callsOutcome struct {
	row     callsRow
	verdict *callsVerdict
}

// playCalls plays a row.
func playCalls(ctx context.Context, row callsRow) (out *callsOutcome, err error) {
	dir, err := os.MkdirTemp("", "hybridlimit-chaos-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &callsRun{row: row, scene: &scene{dir: dir, rng: rand.New(rand.NewPCG(1, 0)), clock: newSharedClock()}}
	defer func() {
		for _, p := range r.procs {
			p.kill()
		}
	}()
	if err := r.open(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", row.where(), err)
	}
	defer r.scene.world.close()
	all, err := r.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", row.where(), err)
	}
	return &callsOutcome{row, checkCalls(r, all)}, nil
}

// open starts the servers and the processes.
func (r *callsRun) open(ctx context.Context) (err error) {
	var env []string
	r.scene.plan = plan{topology: r.row.topology(), hold: r.row.hold}
	if r.row.play == nil {
		f, err := faultNamed(r.row.name)
		if err != nil {
			return err
		}
		if r.scene.plan.faults = []*fault{f}; f.functions || f.load != nil {
			return errors.New("not a fault of Redis or of the network")
		}
		if env, err = f.env(r.scene.dir); err != nil {
			return err
		}
	}
	w, err := startWorld(r.row.topology(), filepath.Join(r.scene.dir, "attic"), env...)
	if err != nil {
		return err
	}
	r.scene.world = w
	if err := w.well(ctx); err != nil {
		w.close()
		return err
	}
	for range callsProcs {
		p, err := startCaller(spec{Topology: r.row.topology(), Addrs: w.addrs(), Dial: w.dial(), FleetSize: callsProcs})
		if err != nil {
			w.close()
			return err
		}
		r.procs = append(r.procs, p)
	}
	return nil
}

// run plays the fault and returns all calls.
func (r *callsRun) run(ctx context.Context) (all []span, err error) {
	if err := r.served(ctx, time.Now()); err != nil {
		return nil, err
	}
	before := readCPU()
	if err := r.strike(ctx); err != nil {
		return nil, err
	}
	if err := r.scene.world.well(ctx); err != nil {
		return nil, err
	}
	over := time.Now()
	if err := r.served(ctx, over); err != nil {
		return nil, err
	}
	r.back = time.Since(over)
	time.Sleep(2 * time.Second)
	r.cpu = before.busy(readCPU())
	for i, p := range r.procs {
		if err := p.stop(); err != nil {
			return nil, err
		}
		spans, err := p.spans(i)
		if err != nil {
			return nil, err
		}
		all = append(all, spans...)
	}
	return all, nil
}

// strike plays the fault of the row.
func (r *callsRun) strike(ctx context.Context) error {
	if r.row.play != nil {
		return r.row.play(r)
	}
	f := *r.scene.plan.faults[0]
	if r.row.hold > 0 {
		f.hold = r.row.hold
	}
	return r.scene.suffer(ctx, &f, time.Second)
}

// served waits until each living process has begun a call with a permit of Redis.
func (r *callsRun) served(ctx context.Context, since time.Time) error {
	return until(ctx, time.Minute, "each process runs a call with a permit of Redis", func() bool {
		time.Sleep(10 * time.Millisecond)
		for i, p := range r.procs {
			all, err := p.spans(i)
			if err != nil || p.ended == 0 && !slices.ContainsFunc(all, func(s span) bool { return shared(s) && s.begin >= since.UnixNano() }) {
				return false
			}
		}
		return true
	})
}

// stoppedProcess stops a process for a time.
func stoppedProcess(d time.Duration) func(*callsRun) error {
	return func(r *callsRun) error {
		if err := r.procs[0].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		r.stopped = time.Now().UnixNano()
		time.Sleep(d)
		r.resumed = time.Now().UnixNano()
		return r.procs[0].cmd.Process.Signal(syscall.SIGCONT)
	}
}

// fewerPermits gives the fleet a lower limit, and then the old one. The longest calls last three seconds, so the lower limit holds
// after that.
func fewerPermits(r *callsRun) error {
	for _, n := range []int{callsFewer, callsPermits} {
		for _, p := range r.procs {
			if _, err := fmt.Fprintf(p.in, "limit %d\n", n); err != nil {
				return err
			}
		}
		if n == callsFewer {
			r.fewer[0] = time.Now().Add(3500 * time.Millisecond).UnixNano()
			time.Sleep(5 * time.Second)
			r.fewer[1] = time.Now().UnixNano()
		}
	}
	time.Sleep(2 * time.Second)
	return nil
}

// evictedCalls deletes the key of the permits as an eviction does, five times. Redis learns after each one, and has no key until a
// process tells its holding.
func evictedCalls(r *callsRun) error {
	rdb, names := r.scene.world.nodes[0].admin, lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	key := names.Held(names.Tag("k"), callsName, "k")
	for range 5 {
		var err error
		if late := until(context.Background(), 20*time.Second, "Redis has the key of the permits", func() bool {
			time.Sleep(10 * time.Millisecond)
			var n int64
			n, err = rdb.Del(context.Background(), key).Result()
			return err != nil || n == 1
		}); late != nil || err != nil {
			return errors.Join(late, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	return nil
}
