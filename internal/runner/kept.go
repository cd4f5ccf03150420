package runner

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// texts remembers the arguments of messages with one op that only asks. They depend on its limit and its units, and not
// on its key.
type texts [64]atomic.Pointer[text]

// text is the arguments for an ask.
type text struct {
	ask  ask
	argv []any
}

type ask struct {
	limit hybridlimit.Limit
	n     int64
}

var seed = maphash.MakeSeed()

// keeps reports whether the arguments of a batch of this op alone depend on its limit and its units only.
func (t *texts) keeps(op *wire.Op) bool { return op.Plain() && len(op.Asks) == 1 && op.Since == 0 }

// of returns the arguments of a batch of this op alone, which keeps permits. They must not be changed.
func (t *texts) of(op *wire.Op) []any {
	a := ask{op.Limit, op.Asks[0]}
	place := &t[maphash.Comparable(seed, a)%uint64(len(t))]
	if have := place.Load(); have != nil && have.ask == a {
		return have.argv
	}
	_, argv := wire.EncodeBatch(wire.Envelope{}, []wire.Op{*op})
	have := &text{ask: a, argv: boxed(argv)}
	place.Store(have)
	return have.argv
}

// Timers are used again, because each call needs one. They belong to their Gather: a timer may not leave its
// testing/synctest bubble.

// timer returns a timer that fires after d.
func (g *Gather) timer(d time.Duration) *time.Timer {
	if t, ok := g.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

func (g *Gather) release(t *time.Timer) {
	t.Stop()
	g.timers.Put(t)
}

// alarm ends a message at its deadline.
type alarm struct {
	timer *time.Timer
	of    atomic.Pointer[message] // nil: the alarm is not set
}

// alarm sets an alarm for m, after the time-out.
func (g *Gather) alarm(m *message) *alarm {
	a, again := g.alarms.Get().(*alarm)
	if !again {
		a = new(alarm)
	}
	a.of.Store(m)
	if again {
		a.timer.Reset(g.timeout)
	} else {
		a.timer = time.AfterFunc(g.timeout, a.ring)
	}
	return a
}

func (a *alarm) ring() { a.of.Load().end() }
