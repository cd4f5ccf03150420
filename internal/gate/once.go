package gate

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
)

// Mark is the note of an adapter about a request that it has admitted. Adapters inside it find the mark, so that a
// request counts once under a limit that it meets twice.
type Mark struct {
	around *Mark // of the next adapter around it; nil: none
	parts  []counted
	of     []any       // the limiters and the Shedder of an adapter of gRPC
	met    atomic.Bool // an adapter inside has one of them
}

// counted is a part that has counted, or a place of a Shedder. A part whose other fields are the same counts no more
// than the difference of n.
type counted struct {
	of      any // the limiter or the Shedder
	name    string
	key     string
	given   hybridlimit.Limit
	givenOK bool
	view    hybridlimit.Limiter
	each    *Limit // of a limit on messages of a stream; with a cost for each message it is the Limit itself

	n int64
}

// equal reports whether two values are the same, without a panic for values that cannot be compared.
func equal(a, b any) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

func (c *counted) same(as *counted) bool {
	return c.name == as.name && c.key == as.key && c.each == as.each && c.givenOK == as.givenOK && c.given == as.given &&
		equal(c.of, as.of) && equal(c.view, as.view)
}

// find returns the largest number of units for which the request was counted in the place of c.
func (m *Mark) find(c counted) (n int64) {
	for ; m != nil; m = m.around {
		for i := range m.parts {
			if have := &m.parts[i]; have.n > n && have.same(&c) {
				n = have.n
			}
		}
	}
	return n
}

// Rest takes the units off a part for which the request was counted by adapters around. It reports whether the limit
// must be asked.
func (m *Mark) Rest(p *Part) bool {
	if m == nil || p.N < 0 {
		return true
	}
	p.before = min(m.find(countedOf(p)), p.N)
	p.N -= p.before
	return p.N > 0
}

// fill notes the parts of an admitted request.
func (m *Mark) fill(parts []Part) {
	for i := range parts {
		if p := &parts[i]; !p.Passed {
			m.parts = append(m.parts, countedOf(p))
		}
	}
}

// Met reports whether the request has met one of its limits again.
func (m *Mark) Met() bool { return m.met.Load() }

// aMessage stands for the limits that count each message as one unit.
var aMessage Limit

func countedOf(p *Part) counted {
	c := counted{of: p.Limiter, key: p.Key, given: p.Given, givenOK: p.GivenOK, view: p.View, n: p.before + p.N}
	c.name, _ = p.Limit.PolicyName()
	switch {
	case p.Each && p.Priced:
		c.each = p.Limit
	case p.Each:
		c.each = &aMessage
	}
	return c
}

type markKey struct{}

// Around returns the mark of the adapters around a call, from its context; nil: there are none. The adapter that asks
// has these limiters.
func Around(ctx context.Context, limiters []any) *Mark {
	around, _ := ctx.Value(markKey{}).(*Mark)
	for m := around; m != nil; m = m.around {
		for _, l := range limiters {
			if slices.ContainsFunc(m.of, func(of any) bool { return equal(of, l) }) {
				m.met.Store(true)
			}
		}
	}
	return around
}

// Placed reports whether the call has a place of the Shedder.
func (m *Mark) Placed(shedder hybridlimit.Shedder) bool {
	return m != nil && m.find(counted{of: shedder}) > 0
}

// Within returns the context of a call that is admitted, for the adapters inside, with a mark of its parts and its
// place. A nil shedder means no place.
func Within(ctx context.Context, limiters []any, parts []Part, shedder hybridlimit.Shedder) (context.Context, *Mark) {
	m := &Mark{parts: make([]counted, 0, len(parts)+1), of: limiters}
	m.around, _ = ctx.Value(markKey{}).(*Mark)
	m.fill(parts)
	if shedder != nil {
		m.parts = append(m.parts, counted{of: shedder, n: 1})
	}
	return context.WithValue(ctx, markKey{}, m), m
}
