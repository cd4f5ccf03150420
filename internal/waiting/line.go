package waiting

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Lines are the calls of a limiter that wait, one line for each key. Only the first call of a line books, so calls of a
// process are served in the order in which they came, whatever the burst. The zero value is ready.
type Lines struct {
	some  atomic.Int64 // lines
	mu    sync.Mutex
	keys  map[string]*line
	idle  int // lines without a call, until it is the turn of their process again
	sweep int // the number of idle lines at which those that are over are dropped
}

// leastSweep is the least number of idle lines before a sweep, and mostIdle the largest number of them.
const leastSweep, mostIdle = 64, 4096

// waiting reports whether a call waits for a key.
func (ls *Lines) waiting(key string) bool {
	if ls.some.Load() == 0 {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.keys[key] != nil
}

// line is the calls for one key, in order. It exists while it has a call, and until it is the turn of its process
// again.
type line struct {
	first, last *turn
	free        time.Time     // no call can have units before it: the last answer said so; zero: not known
	each        time.Duration // in which one unit comes back; 0: not known
	idles       bool          // it has no call
	turns       time.Time     // the next call asks then: until then it is the turn of other processes
}

// turn is the place of a call in its line.
type turn struct {
	next, prev *turn
	n          int64
	deadline   time.Time     // zero: none
	ready      chan struct{} // closed when it is the first; nil: it came first
	late       chan struct{} // closed when its deadline cannot be met; nil: it came first
	gone       bool
}

// join adds a call to the line of a key.
func (ls *Lines) join(key string, n int64, deadline time.Time) (*line, *turn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.keys[key]
	if l == nil {
		l = ls.add(key)
	}
	t := &turn{n: n, deadline: deadline, prev: l.last}
	if l.last == nil {
		if l.idles {
			l.idles = false
			ls.idle--
		}
		l.first, l.last = t, t
		return l, t
	}
	t.ready, t.late = make(chan struct{}), make(chan struct{})
	l.last.next, l.last = t, t
	l.giveUp(t)
	return l, t
}

// leave takes a call out of its line. The next one is the first then.
func (ls *Lines) leave(key string, l *line, t *turn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if t.gone {
		return
	}
	t.gone = true
	if t.prev != nil {
		t.prev.next = t.next
	} else if l.first = t.next; t.next != nil {
		close(t.next.ready)
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		l.last = t.prev
	}
	switch {
	case l.first != nil:
	case time.Now().Before(l.turns):
		l.idles = true
		ls.idle++
		ls.drop()
	default:
		delete(ls.keys, key)
		ls.some.Add(-1)
	}
}

// drop drops idle lines that are over, when there are twice as many as after the last time.
func (ls *Lines) drop() {
	if ls.idle < max(ls.sweep, leastSweep) {
		return
	}
	now := time.Now()
	for key, l := range ls.keys {
		if l.idles && !now.Before(l.turns) {
			delete(ls.keys, key)
			ls.some.Add(-1)
			ls.idle--
		}
	}
	for key, l := range ls.keys { // of too many lines, some processes get more than their turn
		if ls.idle <= mostIdle {
			break
		}
		if l.idles {
			delete(ls.keys, key)
			ls.some.Add(-1)
			ls.idle--
		}
	}
	ls.sweep = min(2*ls.idle, mostIdle)
}

// forget forgets when units are there, because some were given back.
func (ls *Lines) forget(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.keys[key]; l != nil {
		l.free, l.turns = time.Time{}, time.Time{}
	}
}

// tell notes that no call of the line can have units for another d, and that a unit comes back in each. Calls that
// cannot meet their deadline then fail at once.
func (ls *Lines) tell(l *line, d, each time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.each = each
	if free := time.Now().Add(d); free.After(l.free) { // units that are booked ahead may be there later than the next booking
		l.free = free
	}
	l.giveUp(nil)
}

// yield leaves d to other processes, after a call was served. l is nil if it had no place: then the key may have no
// line yet.
func (ls *Lines) yield(key string, l *line, d time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l == nil {
		l = ls.keys[key]
	}
	if l == nil {
		l = ls.add(key)
		l.idles = true
		ls.idle++
		defer ls.drop()
	}
	l.turns = time.Now().Add(d)
}

// add adds a line for a key that has none.
func (ls *Lines) add(key string) *line {
	if ls.keys == nil {
		ls.keys = map[string]*line{}
	}
	l := &line{}
	ls.keys[key] = l
	ls.some.Add(1)
	return l
}

// pause returns the time that is left to other processes.
func (ls *Lines) pause(l *line) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return time.Until(l.turns)
}

// giveUp ends the calls that cannot meet their deadline: all of them, or only one. The first call asks Redis, which
// knows better. The others need a unit each after those before them.
func (l *line) giveUp(only *turn) {
	earliest := l.free
	if earliest.IsZero() {
		return
	}
	for t := l.first.next; t != nil; t = t.next {
		own := earliest.Add(time.Duration(t.n) * l.each)
		if t.deadline.IsZero() || t.deadline.After(own) {
			earliest = own
			continue
		}
		if only != nil && only != t {
			continue
		}
		select {
		case <-t.late:
		default:
			close(t.late)
		}
	}
}

// turn waits for the turn of a call.
func (c Caller) turn(ctx context.Context, t *turn) error {
	if t.ready == nil {
		return nil
	}
	select {
	case <-t.ready:
		return nil
	case <-t.late:
		return fmt.Errorf("%s: %d units of key %q are not available in time, behind other calls: %w", c.Package, c.N, c.Key, context.DeadlineExceeded)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Done:
		return hybridlimit.ErrClosed
	}
}
