package runner

import (
	"sync/atomic"
	"time"
)

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
