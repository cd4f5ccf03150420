package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// act starts a fault. It returns a function that ends it, or nil if the fault is over at once.
type act = func(ctx context.Context, s *scene) (end func() error, err error)

// fault is a failure of a Redis, a network or a client.
type fault struct {
	name      string
	on        []string                                  // the topologies on which it can happen; nil: single
	begin     act                                       // nil: nothing happens
	prepare   func(ctx context.Context, s *scene) error // before the load; nil: nothing
	hold      time.Duration                             // 0: the duration of the plan
	allowed   allowance                                 // the amount by which it may exceed the promises
	proof     *proof                                    // that it took effect; nil: none is needed
	functions bool                                      // the clients use Redis Functions
	clock     bool                                      // the servers have a clock that can be moved
	load      *load                                     // of the clients; nil: that of the plan
	mode      hybrid.Mode
	strict    bool // it has rows in ModeStrict, too
	alone     bool // it is not mixed with others: it takes too long, or its effect cannot be undone
}

// plans returns the rows with this fault only, in the order of the page.
func (f *fault) plans(usual plan) (out []plan) {
	topologies, modes := f.on, []hybrid.Mode{f.mode}
	if topologies == nil {
		topologies = []string{topologySingle}
	}
	if f.strict {
		modes = append(modes, hybrid.ModeStrict)
	}
	for _, on := range topologies {
		for _, mode := range modes {
			p := usual
			p.topology, p.faults, p.mode = on, []*fault{f}, mode
			if f.load != nil {
				p.load = *f.load
			}
			out = append(out, p)
		}
	}
	return out
}

// allFaults returns all faults in the order of the page.
func allFaults() []*fault {
	return slices.Concat(serverFaults, memoryFaults, accessFaults, networkFaults, clientFaults, classFaults, settledFaults(),
		pauseFaults, dayFaults(), failovers, clusterFaults, splitFaults())
}

// mixable returns the faults that can be mixed with others.
func mixable() []*fault {
	return slices.DeleteFunc(allFaults(), func(f *fault) bool { return f.on != nil || f.alone })
}

// faultNamed returns the fault with the given name.
func faultNamed(name string) (*fault, error) {
	for _, f := range allFaults() {
		if f.name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("no such fault: %s", name)
}

// forgets is the allowance for a Redis that lost its memory. The fleet restores the last views, and the debits since
// then are lost. A process in use asks Redis at least once a second.
var forgets = allowance{seconds: 1}

// evicts is the allowance for a Redis that evicts keys at random. In 1.5 s it loses a key up to 50 times.
var evicts = allowance{seconds: 1, again: true}

// proof shows that a fault took effect.
type proof struct {
	shows func(e *evidence) bool
	lacks string // if it does not
}

var (
	failedSyncs = &proof{
		func(e *evidence) bool { _, failed := e.count(recordSync); return failed > 0 },
		"no sync failed",
	}
	resynced = &proof{
		func(e *evidence) bool { return e.anyClient(func(r report) bool { return r.Stats.Resynced > 0 }) },
		"no client told Redis again",
	}
	seenBefore = &proof{
		func(e *evidence) bool { return e.anyClient(func(r report) bool { return r.Hub.Seen > 0 }) },
		"no sync was answered at a later try",
	}
	lostWrites = &proof{
		func(e *evidence) bool { return e.sums.forgotten > 0 },
		"the promoted replica lacked no write of its master",
	}
)

// anyClient reports whether a client's last report is so.
func (e *evidence) anyClient(is func(report) bool) bool {
	return slices.ContainsFunc(e.clients, func(w witness) bool { return is(w.last) })
}

// shows makes a fault fail at its end if a counter of INFO, summed over the nodes, has not risen since its begin.
func shows(section, counter string, begin act) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		before := s.counted(ctx, section, counter)
		end, err := begin(ctx, s)
		return func() error {
			if end != nil {
				if err := end(); err != nil {
					return err
				}
			}
			after := s.counted(ctx, section, counter)
			// In a mix, another fault may have prevented it, or restarted the counter.
			if after <= before && len(s.plan.faults) == 1 {
				return fmt.Errorf("%s was %d and is %d: nothing has happened", counter, before, after)
			}
			return nil
		}, err
	}
}

// counted returns the sum of a counter over the nodes. A counter that INFO does not list is 0.
func (s *scene) counted(ctx context.Context, section, counter string) (sum int64) {
	for _, n := range s.world.nodes {
		n, _ := strconv.ParseInt(strings.TrimPrefix(n.info(ctx, section, counter), "count="), 10, 64)
		sum += n
	}
	return sum
}

// onFirst returns a fault that does something to the first node, which is the master of others, and something else at
// its end.
func onFirst(begin, end func(n *node) error) act { return onNode(0, begin, end) }

// onNode is onFirst for another node.
func onNode(i int, begin, end func(n *node) error) act {
	return func(_ context.Context, s *scene) (func() error, error) {
		n := s.world.nodes[i]
		return func() error { return end(n) }, begin(n)
	}
}

// everyNode returns a fault that sends a command to every node.
func everyNode(words ...any) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		return nil, s.world.each(func(n *node) error { return n.do(ctx, words...) })
	}
}

// configured returns a fault that changes settings on every node, given as names and values, and then sends a command.
func configured(command act, pairs ...string) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		back, err := s.config(ctx, pairs...)
		if err == nil && command != nil {
			_, err = command(ctx, s)
		}
		return back, err
	}
}

// config changes settings on every node, and returns a function that restores them.
func (s *scene) config(ctx context.Context, pairs ...string) (func() error, error) {
	var backs []func() error
	err := s.world.each(func(n *node) error {
		for pair := range slices.Chunk(pairs, 2) {
			back, err := n.set(ctx, pair[0], pair[1])
			if err != nil {
				return err
			}
			backs = append(backs, back)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.insist(ctx, backwards(backs)))
	}
	return backwards(backs), nil
}

// backwards returns a function that undoes steps, the last one first.
func backwards(steps []func() error) func() error {
	return func() (err error) {
		for _, undo := range slices.Backward(steps) {
			err = errors.Join(err, undo())
		}
		return err
	}
}

// again repeats a momentary fault until it is ended.
func again(every time.Duration, begin act) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		var failed error
		stop := repeat(every, func() {
			if _, err := begin(ctx, s); err != nil && failed == nil {
				failed = err
			}
		})
		return func() error {
			if stop(); len(s.plan.faults) > 1 {
				return nil // another fault may have stopped the server meanwhile
			}
			return failed
		}, nil
	}
}
