package hybrid

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
)

// rated returns ErrUnsupported for a limit of calls in flight.
func rated(limit hybridlimit.Limit) error {
	if limit.Algorithm != hybridlimit.AlgConcurrent {
		return nil
	}
	return fmt.Errorf("hybrid: %w: the limit (%v) %s", hybridlimit.ErrUnsupported, limit, control.InFlight)
}

// LimitSource is the source of a limiter's limit. Of several limits, the one with the highest source is in force. A
// limit of a call (AllowLimit) and a limit of a key (Hub.SetFleetKeyLimit, Settings.Keys, Config.LimitFor, in this
// order) win over all of them.
type LimitSource uint8

// The sources, from the weakest to the strongest. Their numbers never change: the gauge rate_limiting.limit.source
// shows them.
const (
	// LimitFromConfig is the limit that New or Hub.Limiter received.
	LimitFromConfig = LimitSource(control.FromConfig)
	// LimitFromSettings is Settings.Limit, for example from a file.
	LimitFromSettings = LimitSource(control.FromSettings)
	// LimitFromFleet is the limit of SetFleetLimit.
	LimitFromFleet = LimitSource(control.FromFleet)
	// LimitFromProcess is the limit of SetLimit.
	LimitFromProcess = LimitSource(control.FromProcess)
)

// String returns "config", "settings", "fleet" or "process".
func (s LimitSource) String() string { return control.Source(s).String() }

// LimitState has the limits of a limiter.
type LimitState struct {
	InForce    hybridlimit.Limit // of every key without a limit of its own
	Source     LimitSource       // of InForce
	Configured hybridlimit.Limit // that New or Hub.Limiter received
	// Fleet is the fleet's limit as last heard, also if a stronger one is in force or if it is only for a part of the
	// keys. Zero: none.
	Fleet FleetLimit
}

// Invalidate makes the next call for key ask Config.LimitFor for its limit, in this process, without waiting for
// Config.LimitRefresh. Call it when a key gets another limit, for example with a message about a customer's new plan.
// The answer changes the limit as SetLimit does: used units stay used. Calls that have begun before may still be
// decided by the old limit. A key that is not in memory needs no Invalidate, and it is no error. Without
// Config.LimitFor nothing happens.
func (l *Limiter) Invalidate(key string) error {
	if err := l.check(key, 1); err != nil {
		return err
	}
	if !l.control.Keyed() {
		return nil
	}
	l.control.Questions.Voids.Add(1) // before the look: a key that comes into memory during it has seen the number
	for _, v := range l.views {
		if e := v.terms.Store.Peek(key); e != nil {
			e.Lock()
			e.Begin(l.hub.clock.Now()) // ends the budget
			e.Void()
			e.Unlock()
		}
	}
	return nil
}

// InvalidateAll is Invalidate for all keys, for example after LimitFor's source was loaded anew. It visits the keys in
// memory (BenchmarkInvalidateAll has the time). A key whose limit has not changed keeps its units.
func (l *Limiter) InvalidateAll() error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	if l.control.Keyed() {
		l.control.VoidLimits()
	}
	return nil
}

// Class is a class of calls of a limiter: see Config.Classes.
type Class = hybridlimit.Class

// ClassCritical is the name of the class with floor 0: the limiter itself, as New returns it.
const ClassCritical = hybridlimit.ClassCritical

// Class returns the view of a class that Config.Classes declares, or for ClassCritical the limiter itself. A call
// through a view is admitted only if it leaves the floor of the class. Result.Limit is the burst without it.
//
// A view is a Limiter with keys, counters and budgets of its own. It shares the state in Redis, the limits, the switch,
// the settings and the fallback with the limiter. To close one of them closes all. Views of one limiter join each other
// in AllowJoint. The error is ErrInvalid for any other name.
func (l *Limiter) Class(name string) (*Limiter, error) {
	place, err := l.classes.Find("hybrid", l.cfg.Name, name)
	if err != nil {
		return nil, err
	}
	return l.views[place], nil
}

// ForClass is Class for adapters, which take the name from a request. A name that is not declared gets the class with
// the largest floor: only a known name can be critical. A limiter without classes returns itself. It never fails.
func (l *Limiter) ForClass(name string) hybridlimit.Limiter { return l.views[l.classes.For(name)] }

var _ hybridlimit.Classer = (*Limiter)(nil)
