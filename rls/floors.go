package rls

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// settleWithin bounds the time of a reload that other floors make longer. Calls of the kinds whose floors change wait
// meanwhile. With a Redis that answers it takes some ms.
const settleWithin = time.Second

// floorsOf returns the floors of each kind of limiter that has rules, ascending. The limiter itself has the floor 0.
func floorsOf(set *rules.Set) map[kind][]float64 {
	all := map[kind][]float64{}
	for _, r := range set.Rules() {
		if r.Unlimited || r.Limit.Algorithm == hybridlimit.AlgBlocked {
			continue
		}
		k := kindOf(r)
		floors := all[k]
		if i, ok := slices.BinarySearch(floors, r.Floor); r.Floor > 0 && !ok {
			floors = slices.Insert(floors, i, r.Floor)
		}
		all[k] = floors
	}
	return all
}

// className returns the name of the class with a floor. It is the same in all processes.
func className(floor float64) string {
	return "floor-" + strconv.FormatFloat(floor, 'g', -1, 64)
}

// viewOf returns the view of a limiter for calls with a floor. A limiter that has no such class gives the one with the
// largest floor: the floor was removed while the call was on its way.
func viewOf(l *hybrid.Limiter, floor float64) *hybrid.Limiter {
	if floor == 0 {
		return l
	}
	return l.ForClass(className(floor)).(*hybrid.Limiter)
}

// ofFloor returns the part of a limit that calls with a floor may use at once: that of hybrid.Limiter.Policy.
func ofFloor(limit hybridlimit.Limit, part float64) hybridlimit.Limit {
	return classes.Without(limit, hybridlimit.Class{Floor: part}.Units(limit))
}

// withFloors gives the limiter of a kind these floors. The floors of a limiter do not change, so another limiter of the
// same name takes its place. Before, the old one pays the units that it owes and returns those that it has leased, so
// that the counts stay. If ctx ends first, lost is the error that tells the units that Redis does not know of. Calls of
// withFloors must not overlap.
func (ls *limiters) withFloors(ctx context.Context, k kind, floors []float64) (lost, err error) {
	ls.mu.Lock()
	have := ls.of[k]
	if have.limiter != nil && slices.Equal(have.floors, floors) {
		ls.mu.Unlock()
		return nil, nil
	}
	if have.limiter != nil {
		have.left = make(chan struct{})
		ls.of[k] = have
		ls.mu.Unlock()
		lost = have.limiter.Shutdown(ctx)
		ls.mu.Lock()
		defer close(have.left)
		have.left = nil
		ls.of[k] = have
	}
	defer ls.mu.Unlock()
	_, err = ls.make(k, floors)
	return lost, err
}

// successor returns the view that has taken the place of a closed one. It waits for it while a reload replaces the
// limiter. It returns nil if there is none: the hub is closed.
func (ls *limiters) successor(ctx context.Context, p *part) (*hybrid.Limiter, error) {
	for {
		ls.mu.RLock()
		have := ls.of[p.kind]
		ls.mu.RUnlock()
		if have.left == nil {
			if l := viewOf(have.limiter, p.floor); l != p.limiter {
				return l, nil
			}
			return nil, nil
		}
		select {
		case <-have.left:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// renew finds the limiters of parts again after an error. It reports whether the parts must be asked again, because a
// reload has closed a limiter: such an error has taken nothing.
func (c *call) renew(ctx context.Context, err *error, parts ...int) (again bool) {
	if !errors.Is(*err, hybridlimit.ErrClosed) {
		return false
	}
	for _, i := range parts {
		p := &c.parts[i]
		l, ended := c.s.limiters.successor(ctx, p)
		if ended != nil {
			*err = ended
			return false
		}
		if l != nil {
			p.limiter, again = l, true
		}
	}
	return again
}
