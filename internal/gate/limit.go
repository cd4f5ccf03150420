package gate

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// DefaultName is the name of a policy without a name.
const DefaultName = "default"

// Limited is a limiter that takes limits with the calls.
type Limited interface {
	// AllowLimit decides under the limit that comes with the call.
	AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error)
}

// Limit is one limit on requests, without the functions that depend on the protocol.
type Limit struct {
	Limiter hybridlimit.Limiter // decides
	Name    string              // overrides the limiter's name if not empty
	Brings  bool                // requests bring their own limits
	Limited Limited             // the limiter, if Brings

	acquirer hybridlimit.Acquirer // the limiter, if it counts calls in flight
}

// Holds reports whether a request holds permits of the limit while it runs.
func (l *Limit) Holds() bool { return l.acquirer != nil }

// PolicyName returns the name of the limit's policy. known is false if only a Result has the name.
func (l *Limit) PolicyName() (name string, known bool) {
	if l.Name != "" {
		return l.Name, true
	}
	d, ok := l.Limiter.(adapter.Describer)
	if !ok {
		return "", false
	}
	return cmp.Or(d.Name(), DefaultName), true
}

// Missing returns the failure of a request without the key of limits[i], which is l. It wraps cause.
func (l *Limit) Missing(i int, cause error) error {
	if name, known := l.PolicyName(); known {
		return fmt.Errorf("%w: limits[%d] (%q)", cause, i, name)
	}
	return fmt.Errorf("%w: limits[%d]", cause, i)
}

// Reader is a limit with the functions that read a request of type R.
type Reader[R any] struct {
	*Limit
	Key    func(ctx context.Context, r R) string                    // "": the limit does not apply
	Cost   func(ctx context.Context, r R) int64                     // nil: 1
	Of     func(ctx context.Context, r R) (hybridlimit.Limit, bool) // nil: requests bring no limit
	NoKey  error                                                    // the failure of a request without a key; nil: none
	Stream bool                                                     // it counts the messages of a stream, whose cost is known later
}

// PartsOf appends a part for each limit that applies to a request and has a cost other than 0, less the units for which
// an adapter around has counted it. With classes, the parts are of the request's class. It returns none if no limit
// applies, and the NoKey of a limit without a key.
func PartsOf[R any](ctx context.Context, r R, limits []Reader[R], classes bool, class string, around *Mark, parts []Part, none error) ([]Part, error) {
	applied := false
	for i := range limits {
		l := &limits[i]
		key, n := l.Key(ctx, r), int64(1)
		if key == "" {
			if l.NoKey != nil {
				return parts, l.NoKey
			}
			continue
		}
		applied = true
		if l.Cost != nil && !l.Stream {
			if n = l.Cost(ctx, r); n == 0 {
				continue
			}
		}
		p := Part{Limit: l.Limit, Index: i, Key: key, N: n, Each: l.Stream}
		if l.Of != nil {
			p.Given, p.GivenOK = l.Of(ctx, r)
		}
		if classes {
			p.View = l.Class(class)
		}
		if p.Each || around.Rest(&p) {
			parts = append(parts, p)
		}
	}
	if !applied && len(limits) > 0 {
		return parts, none
	}
	return parts, nil
}

// CheckedConfig appends the violations of the fields that the Configs of the adapters share.
func CheckedConfig(bad *adapter.Violations, failure, most uint8, shedder hybridlimit.Shedder, classes bool, jitter float64) {
	bad.AddIf(failure > most, "Config.Failure", failure, "must be FailClosed or FailOpen")
	bad.AddIf(shedder != nil && IsNil(shedder), "Config.Shedder", nil, "must not be a nil pointer")
	bad.AddIf(shedder != nil && !classes, "Config.Class", nil, "is required with Config.Shedder")
	if !(jitter >= 0 && jitter <= 1) { // written so that NaN is a violation too
		bad.Add("Config.Jitter", jitter, "must be 0 to 1")
	}
}

// CheckedKey appends the violations of the key of limits[i]. passes reports whether the adapter admits requests without
// a key, which it calls what.
func CheckedKey(bad *adapter.Violations, i int, hasKey, required, passes bool, what string) {
	bad.AddIf(!hasKey, fmt.Sprintf("limits[%d].Key", i), nil, "is required")
	if required && passes {
		bad.Add(fmt.Sprintf("limits[%d].Required", i), true, "must be false with Config.NoKey NoKeyPass, which admits "+what+" without a key")
	}
}

// Checked appends the violations of limits to bad: of Limiter, Of and Name.
func Checked(bad *adapter.Violations, limits []Limit) {
	bad.AddIf(len(limits) == 0, "limits", "none", "must be at least one")
	names, of := map[string]int{}, -1
	for i := range limits {
		l := &limits[i]
		field := func(name string) string { return fmt.Sprintf("limits[%d].%s", i, name) }
		if IsNil(l.Limiter) {
			bad.Add(field("Limiter"), nil, "is required")
			l.Limiter = nil
		}
		l.acquirer, _ = l.Limiter.(hybridlimit.Acquirer)
		if l.Brings {
			var ok bool
			if l.Limited, ok = l.Limiter.(Limited); l.Limiter != nil && !ok {
				bad.Add(field("Of"), "set", fmt.Sprintf("needs a Limiter with the method AllowLimit, as local, global and hybrid have; a %T has none", l.Limiter))
			}
			if of >= 0 {
				bad.Add(field("Of"), "set", fmt.Sprintf("must be nil, because limits[%d] has Of too, and one of them must be asked last; use a middleware for each", of))
			}
			of = i
		}
		bad.AddIf(l.Name != "" && !adapter.CheckName(l.Name), field("Name"), l.Name, "must match [A-Za-z0-9_.-]{1,128}")
		if len(limits) == 1 || l.Limiter == nil && l.Name == "" {
			continue
		}
		name, known := l.PolicyName()
		if !known {
			bad.Add(field("Name"), l.Name, "must be set because there are several limits and this limiter has no name (adapter.Describer)")
			continue
		}
		if first, twice := names[name]; twice {
			bad.Add(field("Name"), l.Name, fmt.Sprintf("must be another name, because limits[%d] has the name %q too", first, name))
			continue
		}
		names[name] = i
	}
}

// IsNil reports whether an interface or the pointer in it is nil. A constructor whose error was ignored gives such a
// pointer.
func IsNil(x any) bool {
	if x == nil {
		return true
	}
	v := reflect.ValueOf(x)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Order returns the order in which limits are asked: limits of calls in flight come first, because a permit is given
// back without a trace, and the limit whose requests bring their own comes last.
func Order(limits []Limit) []int {
	order := make([]int, len(limits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(limits[i].turn(), limits[j].turn()) })
	return order
}

// turn is the place of a limit in the order.
func (l *Limit) turn() int {
	switch {
	case l.Brings:
		return 2
	case l.Holds():
		return 0
	}
	return 1
}

// jointOf returns the limiter that can ask all limiters of rates without Brings together, or nil. It is one that wraps
// another limiter, if there is one: only that knows what it wraps.
func jointOf(limits []Limit) adapter.Joint {
	limits = slices.DeleteFunc(slices.Clone(limits), func(l Limit) bool { return l.Brings || l.Holds() })
	if len(limits) < 2 {
		return nil
	}
	joint, ok := limits[0].Limiter.(adapter.Joint)
	if !ok {
		return nil
	}
	for _, l := range limits {
		if _, wraps := l.Limiter.(wrapper); wraps {
			if joint, ok = l.Limiter.(adapter.Joint); !ok {
				return nil
			}
			break
		}
	}
	for _, l := range limits {
		if !joint.Joins(l.Limiter) {
			return nil
		}
	}
	return joint
}

// Part is one limit applied to one request.
type Part struct {
	*Limit
	Index int    // of the limit, for the adapter
	Key   string // the key that the request counts for
	N     int64  // units
	// Given is the limit that came with the request, if GivenOK.
	Given   hybridlimit.Limit
	GivenOK bool                // the request brings a limit
	Each    bool                // it counts the messages of a stream
	View    hybridlimit.Limiter // of the request's class, from Limit.Class; nil: Limit.Limiter

	Res hybridlimit.Result // Source is SourceUnknown if the limiter was not asked or gave no figures
	// Unavailable is set if the limiter decided by its fallback and returned ErrUnavailable too.
	Unavailable bool
	// Passed is set if the limiter failed and FailOpen admits the request.
	Passed bool

	before   int64              // units for which an adapter around this one has counted the request
	returned bool               // its units were given back
	permit   hybridlimit.Permit // held while the request runs; zero for the limit of a rate
}

// Release gives back the permits that a request holds. It works once.
func Release(parts []Part) {
	for i := range parts {
		parts[i].permit.Release()
	}
}

// Permits returns the permits that a request holds. A hijacked connection keeps them.
func Permits(parts []Part) []hybridlimit.Permit {
	var held []hybridlimit.Permit
	for i := range parts {
		if parts[i].Holds() {
			held = append(held, parts[i].permit)
		}
	}
	return held
}

// PolicyName returns the policy's name in answers and log lines.
func (p *Part) PolicyName() string { return cmp.Or(p.Name, p.Res.Policy, DefaultName) }

// limiter returns the limiter that decides.
func (p *Part) limiter() hybridlimit.Limiter {
	if p.View != nil {
		return p.View
	}
	return p.Limiter
}

// limited is limiter for a request that brings its limit.
func (p *Part) limited() Limited {
	if by, ok := p.View.(Limited); ok {
		return by
	}
	return p.Limited
}

// Class returns the limiter for the requests of a class, or nil if the limiter has no classes.
func (l *Limit) Class(name string) hybridlimit.Limiter {
	if c, ok := l.Limiter.(adapter.Classer); ok {
		return c.ForClass(name)
	}
	return nil
}

// FewParts is the number of limits up to which an adapter keeps a request's parts on the stack.
const FewParts = 4
