package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fault is a way for a Redis, a network or a client to fail.
type fault struct {
	name string
	// on is the topologies. Nil: single.
	on []string
	// begin starts it and returns how to end it, or nil where it is over at once.
	begin func(ctx context.Context, s *scene) (end func() error, err error)
	// hold is how long it lasts. 0: as the plan says.
	hold time.Duration
	// allowed is what it may do to the promises.
	allowed allowance
	// proof says what shows that it has not happened, or "".
	proof func(e *evidence) string
	// functions is that clients use Redis Functions.
	functions bool
	// environ is what the servers' environment needs. Nil: nothing.
	environ func(dir string) ([]string, error)
	// alone is that it goes with no others: it takes too long, or what it does
	// cannot be undone.
	alone bool
}

// where is the topologies that it can happen on.
func (f *fault) where() []string {
	if f.on == nil {
		return []string{topologySingle}
	}
	return f.on
}

func (f *fault) env(dir string) ([]string, error) {
	if f.environ == nil {
		return nil, nil
	}
	return f.environ(dir)
}

// forgets is what a Redis that lost its memory may give out again: the fleet
// tells it what it saw last, and what was debited since is lost. A process in
// use asks Redis at least each second.
var forgets = allowance{seconds: 1}

// failedSyncs is the proof that Redis could not be reached, or did not answer.
func failedSyncs(e *evidence) string {
	if _, failed := e.syncs(); failed == 0 {
		return "no sync failed"
	}
	return ""
}

// resynced is the proof that clients have noticed a loss.
func resynced(e *evidence) string {
	for _, w := range e.clients {
		if w.last.Stats.Resynced > 0 {
			return ""
		}
	}
	return "no client told Redis again"
}

// seenBefore is the proof that a reply was lost after Redis had applied a batch.
func seenBefore(e *evidence) string {
	for _, w := range e.clients {
		if w.last.Hub.Seen > 0 {
			return ""
		}
	}
	return "no sync was answered at a later try"
}

// shows makes a fault fail unless, when it ends, a counter of INFO has risen on
// some node since it began.
func shows(section, counter string, begin func(context.Context, *scene) (func() error, error)) func(context.Context, *scene) (func() error, error) {
	return func(ctx context.Context, s *scene) (func() error, error) {
		before := s.counted(ctx, section, counter)
		end, err := begin(ctx, s)
		return func() error {
			if end != nil {
				if err := end(); err != nil {
					return err
				}
			}
			if len(s.plan.faults) > 1 {
				return nil // another may have kept it from coming to bear, or restarted the counter
			}
			if after := s.counted(ctx, section, counter); after <= before {
				return fmt.Errorf("%s was %d and is %d: nothing has happened", counter, before, after)
			}
			return nil
		}, err
	}
}

// counted adds a counter up over the nodes; what INFO does not list is 0.
func (s *scene) counted(ctx context.Context, section, counter string) (sum int64) {
	for _, n := range s.world.nodes {
		n, _ := strconv.ParseInt(strings.TrimPrefix(n.info(ctx, section, counter), "count="), 10, 64)
		sum += n
	}
	return sum
}

// each calls f on every node.
func (s *scene) each(f func(n *node) error) error {
	for _, n := range s.world.nodes {
		if err := f(n); err != nil {
			return err
		}
	}
	return nil
}

// config sets something on every node, and returns how to set it back.
func (s *scene) config(ctx context.Context, pairs ...string) (back func() error, err error) {
	type setting struct {
		n           *node
		name, value string
	}
	var were []setting
	for _, n := range s.world.nodes {
		for i := 0; i < len(pairs); i += 2 {
			was, err := n.admin.ConfigGet(ctx, pairs[i]).Result()
			if err != nil {
				return nil, err
			}
			were = append(were, setting{n, pairs[i], was[pairs[i]]})
			if err := n.do(ctx, "CONFIG", "SET", pairs[i], pairs[i+1]); err != nil {
				return nil, err
			}
		}
	}
	return func() error {
		for i := len(were) - 1; i >= 0; i-- {
			if err := were[i].n.do(ctx, "CONFIG", "SET", were[i].name, were[i].value); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// everyNode makes a fault of a command that is sent to every node.
func everyNode(words ...any) func(context.Context, *scene) (func() error, error) {
	return func(ctx context.Context, s *scene) (func() error, error) {
		return nil, s.each(func(n *node) error { return n.do(ctx, words...) })
	}
}

// again repeats a fault that is over at once, while it is held.
func again(every time.Duration, begin func(context.Context, *scene) (func() error, error)) func(context.Context, *scene) (func() error, error) {
	return func(ctx context.Context, s *scene) (func() error, error) {
		var failed error
		stop := repeat(every, func() {
			if _, err := begin(ctx, s); err != nil && failed == nil {
				failed = err
			}
		})
		return func() error {
			if stop(); len(s.plan.faults) > 1 {
				return nil // another may have taken the server away meanwhile
			}
			return failed
		}, nil
	}
}

// allFaults is every fault there is, in the order of the page.
func allFaults() []*fault {
	return slices.Concat(serverFaults, memoryFaults, accessFaults, networkFaults, clientFaults, failovers, clusterFaults)
}

// faultNamed finds a fault.
func faultNamed(name string) (*fault, error) {
	for _, f := range allFaults() {
		if f.name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("no such fault: %s", name)
}
