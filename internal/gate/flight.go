package gate

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// Use is a limiter or a Shedder in the adapters of HTTP. All of them share it.
type Use struct {
	of     any
	places atomic.Int64 // in chains of handlers
}

// uses are the uses of all adapters that exist. It keeps none of them.
var uses struct {
	mu  sync.Mutex
	all []weak.Pointer[Use]
}

// UseOf returns the use of a limiter or a Shedder. A value that cannot be compared has one for each adapter.
func UseOf(of any) *Use {
	uses.mu.Lock()
	defer uses.mu.Unlock()
	uses.all = slices.DeleteFunc(uses.all, func(p weak.Pointer[Use]) bool { return p.Value() == nil })
	for _, p := range uses.all {
		if u := p.Value(); u != nil && equal(u.of, of) {
			return u
		}
	}
	u := &Use{of: of}
	uses.all = append(uses.all, weak.Make(u))
	return u
}

// Stands notes one more place in a chain of handlers. Nil is allowed.
func (u *Use) Stands() {
	if u != nil {
		u.places.Add(1)
	}
}

// Often reports whether a request may meet the limiter or Shedder twice.
func (u *Use) Often() bool { return u != nil && u.places.Load() > 1 }

// Flight is a request of HTTP that handlers serve. It is named by the maps of its fields and of its response: handlers
// inside each other share both, and the parts of a batch, which a handler serves one by one, do not. So it is found
// again without a context, which would need a copy of the request. The zero Flight finds nothing.
type Flight struct{ fields, answer uintptr }

// FlightOf returns the Flight of a request. The maps must live until End.
func FlightOf(fields, answer map[string][]string) Flight {
	return Flight{reflect.ValueOf(fields).Pointer(), reflect.ValueOf(answer).Pointer()}
}

// flights are the marks of the requests in flight that may meet a limit again.
var flights [64]struct {
	mu    sync.Mutex
	marks map[Flight]*Mark // the innermost
	_     [48]byte         // so that two locks share no cache line
}

// marks are empty. A mark is used until its handler has returned, so it can be used again.
var marks = sync.Pool{New: func() any { return new(Mark) }}

func (f Flight) shard() int { return int(f.answer >> 6 % uintptr(len(flights))) }

// Rest is Rest of the marks around.
func (f Flight) Rest(p *Part) bool {
	if f == (Flight{}) {
		return true
	}
	s := &flights[f.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[f].Rest(p)
}

// Placed reports whether the request has a place of the Shedder.
func (f Flight) Placed(shedder *Use) bool {
	if f == (Flight{}) {
		return false
	}
	s := &flights[f.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[f].find(counted{of: shedder}) > 0
}

// Begin marks the parts of an admitted request, until End. Shedder is nil without one.
func (f Flight) Begin(parts []Part, shedder *Use) *Mark {
	m := marks.Get().(*Mark)
	m.fill(parts)
	if shedder != nil {
		m.parts = append(m.parts, counted{of: shedder, n: 1})
	}
	s := &flights[f.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marks == nil {
		s.marks = map[Flight]*Mark{}
	}
	m.around = s.marks[f]
	s.marks[f] = m
	return m
}

// End removes a mark.
func (f Flight) End(m *Mark) {
	s := &flights[f.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch last := s.marks[f]; {
	case last != m: // handlers that run side by side
		for last.around != m {
			last = last.around
		}
		last.around = m.around
	case m.around == nil:
		delete(s.marks, f)
	default:
		s.marks[f] = m.around
	}
	clear(m.parts)
	m.parts, m.around = m.parts[:0], nil
	marks.Put(m)
}
