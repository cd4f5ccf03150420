package ratesync

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// exchange is enqueue at once, by a caller that waits for the answer. If no batch of the lane is in flight, the
// caller's goroutine sends the batch and settles the answer: no other goroutine has to be woken twice. If one is in
// flight, it may send an op that only asks beside it. The caller gives up after most. The lane then sends the batch
// again, as after any miss.
func (l *lane) exchange(ctx context.Context, it Item, due int64, most time.Duration) {
	select {
	case l.owner <- struct{}{}:
	default:
		if !l.beside(ctx, it, most) {
			l.enqueue(due, it)
		}
		return
	}
	e := l.engine
	if !e.start() { // closed; from now on Close waits
		<-l.owner
		return
	}
	defer e.wg.Done()
	calm := l.frozen == nil && len(l.parts) == 0 && l.misses == 0 && !l.behind && !l.refusing.Load() && e.cfg.Breaker(l.tag).State() == breaker.Closed
	if !calm {
		<-l.owner
		l.enqueue(due, it)
		return
	}
	l.mu.Lock()
	if it.Node().place != gone {
		l.queue.put(it, due)
	}
	l.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, most)
	closed := context.AfterFunc(e.ctx, cancel)
	l.attempt(bounded)
	closed()
	cancel()
	left := l.frozen != nil || len(l.parts) > 0
	<-l.owner
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !left && len(l.queue) == 0:
	case l.idle == nil:
		l.start()
	case left || l.queue[0].Node().due <= e.at(time.Now()): // otherwise it sleeps until the first item is due
		l.wake()
	}
}
