package inflight

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/clock"
)

// waker calls things at planned times, from one goroutine.
type waker struct {
	clock *clock.Clock
	kick  chan struct{} // has room for one: the first time has changed

	mu    sync.Mutex // guards the planned times of all sleepers; no other lock is taken under it
	queue wakeQueue
}

// sleeper is a thing to wake.
type sleeper interface {
	again(now int64)
	planned() *wakeup
}

// wakeup is the planned time of a sleeper.
type wakeup struct {
	at    int64 // ns; 0: none
	index int   // in the queue
}

func (w *wakeup) planned() *wakeup { return w }

func newWaker(c *clock.Clock) *waker { return &waker{clock: c, kick: make(chan struct{}, 1)} }

// plan wakes s at a time, or earlier if that is planned already.
func (w *waker) plan(s sleeper, at int64) {
	w.mu.Lock()
	p := s.planned()
	if p.at != 0 && p.at <= at {
		w.mu.Unlock()
		return
	}
	if p.at == 0 {
		p.at = at
		heap.Push(&w.queue, s)
	} else {
		p.at = at
		heap.Fix(&w.queue, p.index)
	}
	first := p.index == 0
	w.mu.Unlock()
	if first {
		w.stir()
	}
}

// stir makes the goroutine look again.
func (w *waker) stir() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// cancel takes back what is planned for s.
func (w *waker) cancel(s sleeper) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := s.planned(); p.at != 0 {
		heap.Remove(&w.queue, p.index)
		p.at = 0
	}
}

// next returns the first sleeper if it is due, and otherwise the time until the first one is.
func (w *waker) next(now int64) (s sleeper, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil, time.Hour
	}
	p := w.queue[0].planned()
	if p.at > now {
		return nil, time.Duration(p.at - now)
	}
	s = heap.Pop(&w.queue).(sleeper)
	p.at = 0
	return s, 0
}

// run wakes sleepers until ctx ends. It calls stirred after each stir.
func (w *waker) run(ctx context.Context, stirred func()) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := w.clock.Now()
		s, wait := w.next(now)
		if s != nil {
			s.again(now)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.kick:
			stirred()
		case <-ctx.Done():
		}
	}
}

// wakeQueue is a heap by time.
type wakeQueue []sleeper

func (q wakeQueue) Len() int           { return len(q) }
func (q wakeQueue) Less(i, j int) bool { return q[i].planned().at < q[j].planned().at }
func (q wakeQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].planned().index, q[j].planned().index = i, j
}

func (q *wakeQueue) Push(x any) {
	s := x.(sleeper)
	s.planned().index = len(*q)
	*q = append(*q, s)
}

func (q *wakeQueue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return s
}
