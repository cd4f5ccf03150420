package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	hubs          int           // of a member, each a process of the fleet; 0: 1
}

// fleet has the members with one kind of limiter, and their Redis.
type fleet struct {
	name    string
	size    fleetSize
	srv     *benchkit.Redis
	idle    time.Duration // CPU of Redis in a turn without members
	members []*benchkit.Child
}

// fleets measures all loads.
func (r *results) fleets(ctx context.Context, _ *benchkit.Redis) error {
	for _, load := range r.scale.fleets {
		if err := r.fleetsOf(ctx, load); err != nil {
			return fmt.Errorf("%s: %w", load.name, err)
		}
	}
	return nil
}

// fleetsOf measures all kinds in interleaved rounds. Each has its own Redis, so that heartbeats of one fleet do not
// count in the turns of another.
func (r *results) fleetsOf(ctx context.Context, size fleetSize) error {
	var all []*fleet
	defer func() {
		for _, f := range all {
			f.close()
		}
	}()
	for _, k := range size.kinds {
		srv, err := benchkit.StartRedis()
		if err != nil {
			return err
		}
		all = append(all, &fleet{name: k.name, size: size, srv: srv})
	}
	if err := benchkit.Spread(len(all), func(i int) error { return all[i].rest(ctx) }); err != nil {
		return err
	}
	for _, f := range all {
		if err := f.open(ctx); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	// Round -1 warms up: connections, scripts.
	return benchkit.Turns(-1, r.scale.fleetRounds, len(all), func(round, i int) error {
		cost, err := all[i].turn(ctx, uint64(round+1))
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		if round >= 0 {
			r.Add("fleet", size.name, all[i].name, cost)
		}
		return nil
	})
}

// rest measures the CPU of Redis before there are members.
func (f *fleet) rest(ctx context.Context) error {
	s, err := benchkit.Meter{Redis: f.srv}.Spent(ctx, func() error {
		time.Sleep(f.size.lasts + f.size.settle)
		return nil
	})
	f.idle = s.Redis
	return err
}

// open starts the members, and waits until they are ready.
func (f *fleet) open(ctx context.Context) error {
	for range f.size.members {
		p, err := spawn(ctx)
		if err != nil {
			return err
		}
		f.members = append(f.members, p)
	}
	return f.each(func(i int, p *benchkit.Child) error {
		return p.Ask(order{Join: &membership{
			f.name, f.srv.Addr, i, f.size.members * max(1, f.size.hubs), f.size.keys, f.size.limit, f.size.zipf, f.size.two, max(1, f.size.hubs),
		}}, nil)
	})
}

// turn lets all members make calls at once. It returns the cost of a call.
func (f *fleet) turn(ctx context.Context, turn uint64) (benchkit.Figures, error) {
	answers := make([]turned, len(f.members))
	o := order{
		Turn: turn, PerSecond: float64(f.size.perSecond) / float64(f.size.members), Lasts: f.size.lasts, Settle: f.size.settle,
	}
	spent, err := benchkit.Meter{Redis: f.srv}.Commands(ctx, func() error {
		return f.each(func(i int, p *benchkit.Child) error { return p.Ask(o, &answers[i]) })
	})
	if err != nil {
		return nil, err
	}
	var sum turned
	took := newHistogram()
	spent.Redis, spent.Process = spent.Redis-f.idle, 0
	for _, a := range answers {
		h, err := hdrhistogram.Decode(a.Took)
		if err != nil {
			return nil, err
		}
		took.Merge(h)
		sum.Calls, sum.Denied = sum.Calls+a.Calls, sum.Denied+a.Denied
		sum.Fails, sum.Alone, sum.Ops = sum.Fails+a.Fails, sum.Alone+a.Alone, sum.Ops+a.Ops
		spent.Process += a.Spent.Process
		spent.Messages += a.Spent.Messages
		spent.Sent += a.Spent.Sent
		spent.Received += a.Spent.Received
	}
	if sum.Calls == 0 {
		return nil, errors.New("no call in a turn")
	}
	n := float64(sum.Calls)
	cost, ns := spent.Per(n), quantiles(took)
	cost["p50"], cost["p99"], cost["calls"] = ns["p50"], ns["p99"], n
	cost["denied"], cost["fails"], cost["ops"] = float64(sum.Denied)/n, float64(sum.Fails)/n, float64(sum.Ops)/n
	cost["astray"] = cost["fails"] + float64(sum.Alone)/n // errors, and decisions without Redis
	return cost, nil
}

// each does something with all members at once.
func (f *fleet) each(do func(i int, p *benchkit.Child) error) error {
	return benchkit.Spread(len(f.members), func(i int) error { return do(i, f.members[i]) })
}

func (f *fleet) close() {
	for _, p := range f.members {
		if err := p.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "redis: a member of %s: %v\n", f.name, err)
		}
	}
	f.srv.Close()
}

// spawn starts this program again as a member.
func spawn(ctx context.Context) (*benchkit.Child, error) {
	return benchkit.StartChild(ctx, []string{memberEnv + "=1"})
}
