package shed

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/hybridlimit/hybridlimit"
)

// errNoRoom is the end of a wait without a free place.
var errNoRoom = errors.New("no place was free in time")

// room gives free places of the limiter to waiting calls, the most important class first, and first come, first served
// within a class. The limiter decides how many places there are. Its own queue has one order for all calls, so it is
// not used.
type room struct {
	limiter adaptivelimiter.AdaptiveLimiter[any]
	ended   chan struct{} // closed by end

	mu      sync.Mutex
	waiting []list.List // of chan adaptivelimiter.Permit, by class; index 0 stays empty
}

func newRoom(limiter adaptivelimiter.AdaptiveLimiter[any], classes int) *room {
	return &room{limiter: limiter, ended: make(chan struct{}), waiting: make([]list.List, classes)}
}

// enter takes a place for a call of a class, and waits for it until most has passed. It calls full before the wait.
func (r *room) enter(ctx context.Context, class int, most time.Duration, full func()) (adaptivelimiter.Permit, error) {
	permit, mine, place := r.try(class)
	if permit != nil {
		return permit, nil
	}
	full()
	timer := time.NewTimer(most)
	defer timer.Stop()
	var err error
	select {
	case permit = <-mine:
		return permit, nil
	case <-timer.C:
		err = errNoRoom
	case <-ctx.Done():
		err = ctx.Err()
	case <-r.ended:
		err = hybridlimit.ErrClosed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case permit = <-mine: // the place came at the same moment
		return permit, nil
	default:
		r.waiting[class].Remove(place)
		return nil, err
	}
}

// try takes a free place, or else a position among the waiting calls. A free place does not go past a call that waits
// in this class or above.
func (r *room) try(class int) (permit adaptivelimiter.Permit, mine chan adaptivelimiter.Permit, place *list.Element) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ahead := false
	for c := range r.waiting[:class+1] {
		ahead = ahead || r.waiting[c].Len() > 0
	}
	if !ahead {
		if permit, ok := r.limiter.TryAcquirePermit(); ok {
			return permit, nil, nil
		}
	}
	mine = make(chan adaptivelimiter.Permit, 1)
	return nil, mine, r.waiting[class].PushBack(mine)
}

// leave gives a place back, and gives free places to the calls that wait.
func (r *room) leave(permit adaptivelimiter.Permit) {
	permit.Record()
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.waiting {
		for r.waiting[c].Len() > 0 {
			free, ok := r.limiter.TryAcquirePermit()
			if !ok {
				return
			}
			first := r.waiting[c].Front()
			r.waiting[c].Remove(first).(chan adaptivelimiter.Permit) <- free
		}
	}
}

// queued returns the number of calls that wait.
func (r *room) queued() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for c := range r.waiting {
		n += r.waiting[c].Len()
	}
	return n
}

// end ends all waits with ErrClosed. It is called once.
func (r *room) end() { close(r.ended) }
