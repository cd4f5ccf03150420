package local

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Class is a class of calls of a limiter: see Config.Classes.
type Class = hybridlimit.Class

// Class returns the view of a class that Config.Classes declares, or for hybridlimit.ClassCritical the limiter itself.
// A call through a view is admitted only if it leaves the floor of the class. Result.Limit is the burst without it. A
// reservation of a class books nothing ahead of a bucket. Charge is unconditional, and passes the floor.
//
// A view shares keys, limits and Close with the limiter. The views of a limiter join each other in AllowJoint. The
// error is ErrInvalid for any other name.
func (l *Limiter) Class(name string) (*Limiter, error) {
	place, err := l.classes.Find("local", l.cfg.Name, name)
	if err != nil {
		return nil, err
	}
	return l.views[place], nil
}

// ForClass is Class for adapters, which take the name from a request. A name that is not declared gets the class with
// the largest floor: only a known name can be critical. A limiter without classes returns itself. It never fails.
func (l *Limiter) ForClass(name string) hybridlimit.Limiter { return l.views[l.classes.For(name)] }

var _ hybridlimit.Classer = (*Limiter)(nil)

// floor returns the units that the limiter's class leaves to others.
func (l *Limiter) floor(p *plan) int64 {
	if l.class.Floor == 0 || static(p.limit.Algorithm) {
		return 0
	}
	return hybridlimit.Class{Floor: l.class.Floor}.Units(p.limit)
}

// ofClass returns the part of a limit that the limiter's class may use at once.
func (l *Limiter) ofClass(limit hybridlimit.Limit) hybridlimit.Limit {
	if l.class.Floor == 0 || static(limit.Algorithm) {
		return limit
	}
	floor := hybridlimit.Class{Floor: l.class.Floor}.Units(limit)
	if limit.Algorithm == hybridlimit.AlgFixedWindow || limit.Algorithm == hybridlimit.AlgSlidingWindow {
		limit.Rate -= floor
	} else {
		limit.Burst = limit.BurstSize() - floor
	}
	return limit
}

// decideAbove is state.decide for a class with a floor: it takes n units if floor more are there.
func decideAbove(s state, p *plan, now time.Duration, n, floor int64) (delay time.Duration, ok bool, seen look) {
	if seen = s.look(p, now, n+floor); seen.retry == 0 {
		delay, ok = s.take(p, now, n)
		seen = s.look(p, now, 0)
	}
	seen.room = max(0, seen.room-floor)
	return delay, ok, seen
}

// bookAbove is state.book for a class with a floor, which takes no units of the future.
func bookAbove(s state, p *plan, now time.Duration, n, floor int64, most time.Duration) booking {
	if floor > 0 {
		if wait := s.look(p, now, n+floor).retry; wait > 0 {
			return booking{delay: wait, retry: wait}
		}
	}
	return s.book(p, now, n, most)
}
