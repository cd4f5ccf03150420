package main

import (
	"sync/atomic"
	"time"
)

// load is a number of calls a second. One goroutine makes them, and others change their number.
type load struct {
	perSecond atomic.Int64  // in thousandths
	wake      chan struct{} // signals that there may be something to do again

	last time.Time // of the last call of due
	part float64   // of the next call
}

// pace is the time between two batches of calls. maxLag is the longest delay of the load. Calls that cannot be made in
// time are dropped.
const (
	pace   = 10 * time.Millisecond
	maxLag = 250 * time.Millisecond
)

func newLoad() *load { return &load{wake: make(chan struct{}, 1), last: time.Now()} }

// aim sets the number of calls a second.
func (l *load) aim(perSecond float64) {
	l.perSecond.Store(int64(perSecond * 1000))
	l.rouse()
}

// rouse ends a rest.
func (l *load) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

func (l *load) none() bool { return l.perSecond.Load() == 0 }

// due returns the number of calls to make now.
func (l *load) due(now time.Time) int {
	l.part += float64(l.perSecond.Load()) / 1000 * min(now.Sub(l.last), maxLag).Seconds()
	l.last = now
	calls := int(l.part)
	l.part -= float64(calls)
	return calls
}

// rest waits without ticks until there may be something to do. It reports whether stop was closed instead.
func (l *load) rest(tick *time.Ticker, stop <-chan struct{}) (stopped bool) {
	tick.Stop()
	select {
	case <-stop:
		return true
	case <-l.wake:
	}
	tick.Reset(pace)
	l.last = time.Now()
	return false
}
