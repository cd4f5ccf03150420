package gate

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// Kind is a kind of chain. It is also the key of Marks in contexts, so a chain finds no Mark of another kind.
type Kind uint8

// The kinds.
const (
	HTTP Kind = iota
	Unary
	Stream
)

// use is a limiter or a Shedder in the chains of a kind. All adapters of the kind share it.
type use struct {
	kind   Kind
	of     any
	places atomic.Int64 // a place counts for as long as the use exists
}

// uses are the uses of all adapters that exist. It keeps none of them.
var uses struct {
	mu  sync.Mutex
	all []weak.Pointer[use]
}

// useOf returns the use of a limiter or a Shedder. A value that cannot be compared has one for each adapter.
func useOf(kind Kind, of any) *use {
	uses.mu.Lock()
	defer uses.mu.Unlock()
	uses.all = slices.DeleteFunc(uses.all, func(p weak.Pointer[use]) bool { return p.Value() == nil })
	for _, p := range uses.all {
		if u := p.Value(); u != nil && u.kind == kind && equal(u.of, of) {
			return u
		}
	}
	u := &use{kind: kind, of: of}
	uses.all = append(uses.all, weak.Make(u))
	return u
}

// equal reports whether two values are the same, without a panic for values that cannot be compared.
func equal(a, b any) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Stands notes one more place of the limiters and of the Shedder in a chain.
func (g *Gate) Stands() {
	for _, u := range g.uses {
		u.places.Add(1)
	}
}

// Often reports whether a request may meet one of the limiters or the Shedder twice.
func (g *Gate) Often() bool {
	return slices.ContainsFunc(g.uses, func(u *use) bool { return u.places.Load() > 1 })
}
