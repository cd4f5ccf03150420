package hybrid

import (
	"github.com/hybridlimit/hybridlimit"
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

var _ hybridlimit.Classer = (*Limiter)(nil)
