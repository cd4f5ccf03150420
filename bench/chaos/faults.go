package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// fault is a failure of a Redis, a network or a client.
type fault struct {
	name string
	// on has the topologies on which it can happen. Nil means single.
	on []string
	// begin starts the fault. It returns a function that ends it, or nil if the
	// fault is over at once.
	begin func(ctx context.Context, s *scene) (end func() error, err error)
	// hold is the duration. 0 means the duration of the plan.
	hold time.Duration
	// allowed is the amount by which it may exceed the promises.
	allowed allowance
	// proof returns "" if the fault took effect, else the evidence that it did
	// not.
	proof func(e *evidence) string
	// functions makes the clients use Redis Functions.
	functions bool
	// environ returns environment variables for the servers. Nil means none.
	environ func(dir string) ([]string, error)
	// load is that of the clients. Nil means that of the plan.
	load *load
	// mode is the mode in which it is played.
	mode hybrid.Mode
	// strict adds rows in ModeStrict to those in ModeAuto.
	strict bool
	// alone excludes the fault from mixes: it takes too long, or its effect
	// cannot be undone.
	alone bool
}

// where returns the topologies on which the fault can happen.
func (f *fault) where() []string {
	if f.on == nil {
		return []string{topologySingle}
	}
	return f.on
}

// modes returns the modes in which the fault is played.
func (f *fault) modes() []hybrid.Mode {
	if f.strict {
		return []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict}
	}
	return []hybrid.Mode{f.mode}
}

// plan returns the plan of a row with this fault only.
func (f *fault) plan(usual plan, on string, mode hybrid.Mode) plan {
	p := usual
	p.topology, p.faults, p.mode = on, []*fault{f}, mode
	if f.load != nil {
		p.load = *f.load
	}
	return p
}

func (f *fault) env(dir string) ([]string, error) {
	if f.environ == nil {
		return nil, nil
	}
	return f.environ(dir)
}

// forgets is the allowance for a Redis that lost its memory. The fleet restores
// the last views, and the debits since then are lost. A process in use asks Redis
// at least once a second.
var forgets = allowance{seconds: 1}

// failedSyncs proves that Redis could not be reached, or did not answer.
func failedSyncs(e *evidence) string {
	if _, failed := e.syncs(); failed == 0 {
		return "no sync failed"
	}
	return ""
}

// resynced proves that clients have noticed a loss.
func resynced(e *evidence) string {
	for _, w := range e.clients {
		if w.last.Stats.Resynced > 0 {
			return ""
		}
	}
	return "no client told Redis again"
}

// seenBefore proves that a reply was lost after Redis had applied a batch.
func seenBefore(e *evidence) string {
	for _, w := range e.clients {
		if w.last.Hub.Seen > 0 {
			return ""
		}
	}
	return "no sync was answered at a later try"
}

// shows makes a fault fail at its end if a counter of INFO, summed over the
// nodes, has not risen since its begin.
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
				return nil // another fault may have prevented it, or restarted the counter
			}
			if after := s.counted(ctx, section, counter); after <= before {
				return fmt.Errorf("%s was %d and is %d: nothing has happened", counter, before, after)
			}
			return nil
		}, err
	}
}

// counted returns the sum of a counter over the nodes. A counter that INFO does
// not list is 0.
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

// everyNode returns a fault that sends a command to every node.
func everyNode(words ...any) func(context.Context, *scene) (func() error, error) {
	return func(ctx context.Context, s *scene) (func() error, error) {
		return nil, s.each(func(n *node) error { return n.do(ctx, words...) })
	}
}

// again repeats a momentary fault until it is ended.
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
				return nil // another fault may have stopped the server meanwhile
			}
			return failed
		}, nil
	}
}

// allFaults returns all faults in the order of the page.
func allFaults() []*fault {
	return slices.Concat(serverFaults, memoryFaults, accessFaults, networkFaults, clientFaults, classFaults, failovers, clusterFaults)
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
