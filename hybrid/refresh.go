package hybrid

import (
	"github.com/hybridlimit/hybridlimit"
)

// Invalidate makes the next call for key ask Config.LimitFor for its limit, in this process, without waiting for
// Config.LimitRefresh. Call it when a key gets another limit, for example with a message about a customer's new plan.
// The answer changes the limit as SetLimit does: used units stay used. Calls that have begun before may still be
// decided by the old limit. A key that is not in memory needs no Invalidate, and it is no error. Without
// Config.LimitFor nothing happens.
func (l *Limiter) Invalidate(key string) error {
	if err := l.check(key, 1); err != nil {
		return err
	}
	if !l.control.Keyed() {
		return nil
	}
	l.control.Questions.Voids.Add(1) // before the look: a key that comes into memory during it has seen the number
	for _, v := range l.views {
		if e := v.terms.Store.Peek(key); e != nil {
			e.Lock()
			e.Begin(l.hub.clock.Now()) // ends the budget
			e.Void()
			e.Unlock()
		}
	}
	return nil
}

// InvalidateAll is Invalidate for all keys, for example after LimitFor's source was loaded anew. It visits the keys in
// memory (BenchmarkInvalidateAll has the time). A key whose limit has not changed keeps its units.
func (l *Limiter) InvalidateAll() error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	if l.control.Keyed() {
		l.control.VoidLimits()
	}
	return nil
}
