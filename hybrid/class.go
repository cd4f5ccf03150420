package hybrid

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Class is a class of calls of a limiter: see Config.Classes.
type Class = hybridlimit.Class

// ClassCritical is the name of the class with floor 0: the limiter itself, as New returns it.
const ClassCritical = hybridlimit.ClassCritical

// Class returns the view of a class that Config.Classes declares, or for ClassCritical the limiter itself. A call through a
// view is admitted only if it leaves the floor of the class. Result.Limit is the burst without it.
//
// A view is a Limiter with keys, counters and budgets of its own. It shares the state in Redis, the limits, the switch, the
// settings and the fallback with the limiter. To close one of them closes all. Views of one limiter join each other in
// AllowJoint. The error is ErrInvalid for any other name.
func (l *Limiter) Class(name string) (*Limiter, error) {
	place, err := l.classes.Find("hybrid", l.cfg.Name, name)
	if err != nil {
		return nil, err
	}
	return l.views[place], nil
}

// ForClass is Class for adapters, which take the name from a request. A name that is not declared gets the class with the
// largest floor: only a known name can be critical. A limiter without classes returns itself. It never fails.
func (l *Limiter) ForClass(name string) hybridlimit.Limiter { return l.views[l.classes.For(name)] }

// classed reports whether the limiter has classes.
func (l *Limiter) classed() bool { return len(l.views) > 1 }

// newPlan returns the plan of a valid limit for the limiter's class.
func (l *Limiter) newPlan(limit hybridlimit.Limit) *account.Plan {
	p := account.NewPlan(limit)
	if l.classed() {
		p = p.Above(l.class.Floor, l.class.Upper)
	}
	return p
}

// ofClass returns the part of a limit that the limiter's class may use at once.
func (l *Limiter) ofClass(limit hybridlimit.Limit) hybridlimit.Limit {
	if l.class.Floor == 0 { // a plan need not be made
		return limit
	}
	switch floor := l.newPlan(limit).Floor; {
	case floor == 0:
	case limit.Algorithm == hybridlimit.AlgFixedWindow || limit.Algorithm == hybridlimit.AlgSlidingWindow:
		limit.Rate -= floor
	default:
		limit.Burst = limit.BurstSize() - floor
	}
	return limit
}

// fits returns an error if the limiter cannot have a limit: see sameAlgorithm. A limiter with classes has no log.
func (l *Limiter) fits(limit hybridlimit.Limit, have *account.Plan) error {
	var bad hybridlimit.Violations
	if l.flight != nil {
		addRate(&bad, "Limit", limit)
		return bad.Err("hybrid")
	}
	addInFlight(&bad, "Limit", limit)
	if l.classed() && limit.Algorithm == hybridlimit.AlgSlidingLog {
		bad.Add("Limit.Algorithm", limit.Algorithm, "has no floors, and the limiter has classes")
	}
	if len(bad) > 0 {
		return bad.Err("hybrid")
	}
	return sameAlgorithm(limit, have)
}

var _ hybridlimit.Classer = (*Limiter)(nil)
