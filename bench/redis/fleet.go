package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// fleetSize is a load of a fleet: processes that use the same keys.
type fleetSize struct {
	name          string
	kinds         []kind
	limit         hybridlimit.Limit // of each key
	zipf          bool              // keys are drawn by Zipf's law, not uniformly
	two           bool              // each call has a second limit, on its tenant: see tenants
	members, keys int
	perSecond     int           // calls of all members together
	lasts, settle time.Duration // of the calls of a turn, and after the last of them
}

// fewCalls is the cost of a decision in one turn of a fleet.
type fewCalls struct {
	cpu, script, process   float64 // µs: of Redis, in its scripts, of the members
	messages, bytes        float64 // bytes to and from Redis
	p50, p99               float64 // ns of a call, of all members
	denied, fails, without float64 // shares; without: decided without Redis
	calls                  float64 // in the turn
}

// fleetTable has the figures of all limiters under a load.
type fleetTable struct {
	size fleetSize
	rows []*fleetRow
}

// row returns the figures of a limiter; nil: there are none.
func (t *fleetTable) row(name string) *fleetRow {
	for _, row := range t.rows {
		if row.name == name {
			return row
		}
	}
	return nil
}

// fleetRow has the figures of a fleet.
type fleetRow struct {
	name string
	cost series[fewCalls]
}

// fleet has the members with one kind of limiter, and their Redis.
type fleet struct {
	srv     *server
	idle    time.Duration // CPU of Redis in a turn without members
	members []*benchkit.Child
	row     *fleetRow
}

// fleets measures all kinds in interleaved rounds. Each has its own Redis, so
// that heartbeats of one fleet do not count in the turns of another.
func fleets(ctx context.Context, rounds int, size fleetSize) ([]*fleetRow, error) {
	var rows []*fleetRow
	var all []*fleet
	defer func() {
		for _, f := range all {
			f.close()
		}
	}()
	for _, k := range size.kinds {
		srv, err := startServer()
		if err != nil {
			return nil, err
		}
		rows = append(rows, &fleetRow{name: k.name})
		all = append(all, &fleet{srv: srv, row: rows[len(rows)-1]})
	}
	if err := idleFleets(ctx, all, size.lasts+size.settle); err != nil {
		return nil, err
	}
	for _, f := range all {
		if err := f.open(ctx, size); err != nil {
			return nil, fmt.Errorf("%s: %w", f.row.name, err)
		}
	}
	for round := -1; round < rounds; round++ { // round -1 warms up: connections, scripts
		for i := range all {
			f := all[(i+max(round, 0))%len(all)]
			cost, err := f.turn(ctx, size, uint64(round+1))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.row.name, err)
			}
			if round >= 0 {
				f.row.cost = append(f.row.cost, cost)
			}
		}
	}
	return rows, nil
}

// idleFleets measures the CPU of each Redis before there are members.
func idleFleets(ctx context.Context, all []*fleet, lasts time.Duration) (err error) {
	before := make([]time.Duration, len(all))
	for i, f := range all {
		if before[i], err = f.srv.cpu(ctx); err != nil {
			return err
		}
	}
	time.Sleep(lasts)
	for i, f := range all {
		after, err := f.srv.cpu(ctx)
		if err != nil {
			return err
		}
		f.idle = after - before[i]
	}
	return nil
}

// open starts the members, and waits until they are ready.
func (f *fleet) open(ctx context.Context, size fleetSize) error {
	for i := range size.members {
		p, err := spawn(ctx)
		if err != nil {
			return err
		}
		f.members = append(f.members, p)
		if err := p.Send(membership{f.row.name, f.srv.addr, i, size.members, size.keys, size.limit, size.zipf, size.two}); err != nil {
			return err
		}
	}
	_, err := f.answers()
	return err
}

// turn lets all members make calls at once.
func (f *fleet) turn(ctx context.Context, size fleetSize, turn uint64) (c fewCalls, err error) {
	if err := f.srv.admin.ConfigResetStat(ctx).Err(); err != nil {
		return c, err
	}
	cpu, err := f.srv.cpu(ctx)
	if err != nil {
		return c, err
	}
	each := float64(size.perSecond) / float64(size.members)
	for _, p := range f.members {
		if err := p.Send(order{turn, each, size.lasts, size.settle}); err != nil {
			return c, err
		}
	}
	answers, err := f.answers()
	if err != nil {
		return c, err
	}
	cpu2, err := f.srv.cpu(ctx)
	if err != nil {
		return c, err
	}
	commands, err := f.srv.commands(ctx)
	if err != nil {
		return c, err
	}
	var sum turned
	took := newHistogram()
	for _, a := range answers {
		h, err := hdrhistogram.Decode(a.Took)
		if err != nil {
			return c, err
		}
		took.Merge(h)
		sum.Calls, sum.Denied, sum.Fails, sum.Alone = sum.Calls+a.Calls, sum.Denied+a.Denied, sum.Fails+a.Fails, sum.Alone+a.Alone
		sum.Messages, sum.Sent, sum.Received = sum.Messages+a.Messages, sum.Sent+a.Sent, sum.Received+a.Received
		sum.CPU += a.CPU
	}
	if sum.Calls == 0 {
		return c, errors.New("no call in a turn")
	}
	n := float64(sum.Calls)
	share := func(of int64) float64 { return float64(of) / n }
	micros := func(of time.Duration) float64 { return float64(of.Nanoseconds()) / 1000 / n }
	return fewCalls{
		cpu: micros(cpu2 - cpu - f.idle), process: micros(sum.CPU),
		script:   (commands["evalsha"]["usec"] + commands["eval"]["usec"]) / n,
		messages: share(sum.Messages), bytes: share(sum.Sent + sum.Received),
		p50: float64(took.ValueAtQuantile(50)), p99: float64(took.ValueAtQuantile(99)),
		denied: share(sum.Denied), fails: share(sum.Fails), without: share(sum.Alone), calls: n,
	}, nil
}

// answers waits for one answer of each member.
func (f *fleet) answers() ([]turned, error) {
	out, errs := make([]turned, len(f.members)), make([]error, len(f.members))
	var wg sync.WaitGroup
	for i, p := range f.members {
		wg.Go(func() {
			if errs[i] = p.Receive(&out[i]); errs[i] == nil && out[i].Err != "" {
				errs[i] = errors.New(out[i].Err)
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func (f *fleet) close() {
	for _, p := range f.members {
		if err := p.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "redis: a member of %s: %v\n", f.row.name, err)
		}
	}
	f.srv.close()
}

// spawn starts this program again as a member.
func spawn(ctx context.Context) (*benchkit.Child, error) {
	return benchkit.StartChild(ctx, []string{memberEnv + "=1"})
}
