package gate

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// Mark is the note of an adapter in the context of a request that it has admitted. Adapters inside find it, so that the
// request counts once under a limit that it meets twice. A nil Mark notes nothing.
type Mark struct {
	around  *Mark                  // of the next adapter around; nil: none
	parts   atomic.Pointer[[]Part] // that have counted the request, with all its units
	shedder any                    // which has given the request a place; nil: none
}

// Around returns the mark of the adapters around a request. It is nil if no limiter here has a second place.
func (g *Gate) Around(ctx context.Context) *Mark {
	if !g.Often() {
		return nil
	}
	m, _ := ctx.Value(g.kind).(*Mark)
	return m
}

// Within returns the context of an admitted request for the adapters inside, with a mark of its parts and of its place.
func (g *Gate) Within(ctx context.Context, parts []Part) (context.Context, *Mark) {
	m := &Mark{shedder: g.shedder}
	m.around, _ = ctx.Value(g.kind).(*Mark)
	m.Count(parts)
	return context.WithValue(ctx, g.kind, m), m
}

// Count replaces the parts of the mark.
func (m *Mark) Count(parts []Part) {
	if m == nil {
		return
	}
	all := make([]Part, 0, len(parts)) // a copy, because adapters keep theirs on the stack
	for _, p := range parts {
		if p.N += p.before; !p.Passed {
			all = append(all, p)
		}
	}
	m.parts.Store(&all)
}

// Rest takes the units off a part for which adapters around have counted the request. It reports whether any are left.
func (m *Mark) Rest(p *Part) bool {
	n := p.N
	for ; m != nil && n > 0; m = m.around {
		for _, have := range *m.parts.Load() {
			if have.same(p) {
				p.before = min(n, max(p.before, have.N))
			}
		}
	}
	p.N = n - p.before
	return p.N != 0
}

// same reports whether two parts count the same units.
func (p *Part) same(as *Part) bool {
	name, _ := p.Limit.PolicyName()
	other, _ := as.Limit.PolicyName()
	return name == other && p.Key == as.Key && p.Each == as.Each && p.GivenOK == as.GivenOK && p.Given == as.Given &&
		equal(p.Limiter, as.Limiter) && equal(p.View, as.View)
}

// Placed reports whether the request has a place of the Shedder.
func (m *Mark) Placed(shedder any) bool {
	return m != nil && (equal(m.shedder, shedder) || m.around.Placed(shedder))
}

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
