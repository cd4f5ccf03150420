// Package classes finds the classes of a limiter by their names, for packages local and hybrid: see hybridlimit.Class.
package classes

import (
	"fmt"
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// Class is a class of a limiter. The zero Class is the only one of a limiter without classes.
type Class struct {
	Name  string  // hybridlimit.ClassCritical for the limiter's own
	Floor float64 // part of the burst that it leaves to others
	Upper bool    // another class has a larger floor
	Place int     // in Set
}

// Set is the classes of a limiter, its own first.
type Set []Class

// Of returns the classes of a limiter that declares these, which are valid.
func Of(declared []hybridlimit.Class) Set {
	if len(declared) == 0 {
		return Set{{}}
	}
	all, largest := Set{{Name: hybridlimit.ClassCritical}}, 0.0
	for i, d := range declared {
		all = append(all, Class{Name: d.Name, Floor: d.Floor, Place: i + 1})
		largest = max(largest, d.Floor)
	}
	for i := range all {
		all[i].Upper = all[i].Floor < largest
	}
	return all
}

// Find returns the place of a class. A limiter without classes has the class hybridlimit.ClassCritical. For any other
// name the error is ErrInvalid.
func (s Set) Find(pkg, limiter, name string) (place int, err error) {
	if name == hybridlimit.ClassCritical {
		return 0, nil
	}
	if i := s.index(name); i >= 0 {
		return i, nil
	}
	var bad adapter.Violations
	bad.Add("name", name, fmt.Sprintf("is no class of limiter %q", limiter))
	return 0, bad.Err(pkg + ": Class")
}

// For returns the place of a class whose name comes from a request. For a name that is not declared it is the class
// with the largest floor: only a known name can be critical.
func (s Set) For(name string) (place int) {
	if i := s.index(name); i >= 0 {
		return i
	}
	return slices.IndexFunc(s, func(c Class) bool { return !c.Upper })
}

func (s Set) index(name string) int {
	return slices.IndexFunc(s, func(c Class) bool { return c.Name == name && name != "" })
}

// Without returns the part of a limit that a class may use at once if it leaves floor units to others: of a window a
// smaller Rate, of a bucket a smaller Burst.
func Without(limit hybridlimit.Limit, floor int64) hybridlimit.Limit {
	if floor == 0 {
		return limit
	}
	switch limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow, hybridlimit.AlgCalendarWindow:
		limit.Rate -= floor
	default:
		limit.Burst = limit.BurstSize() - floor
	}
	return limit
}
