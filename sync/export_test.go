package ratesync

import "context"

// Idle waits until no lane has an item queued or in flight, or until ctx ends.
func (e *Engine) Idle(ctx context.Context) error {
	for i := range e.lanes {
		l := &e.lanes[i]
		for {
			l.mu.Lock()
			idle := l.idle
			l.mu.Unlock()
			if idle == nil {
				break
			}
			select {
			case <-idle:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// Queued returns the number of items in a tag's queue.
func (e *Engine) Queued(tag int) int {
	l := &e.lanes[tag]
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}
