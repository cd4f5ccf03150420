package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
)

// Close denies all further calls with hybridlimit.ErrClosed, those that wait too. It
// returns at once. Permits of running calls stay valid: the hub tells them to the
// fleet until they are released, and then the limiter's name is free. Hub.Close ends
// that: the fleet then gives the permits of calls that still run to others, about
// 3 s after the first call that they refuse. Close is idempotent, and its error is always
// nil.
func (l *ConcurrencyLimiter) Close() error {
	l.base.shut()
	l.stop()
	if l.keys.Load() == 0 {
		l.ended()
	}
	return nil
}

// Shutdown is Close, and then waits until all calls have released their permits and
// Redis has them back. It stops waiting when ctx ends, or after 5 s if ctx has no
// deadline. The error then has the number of permits that are still held.
func (l *ConcurrencyLimiter) Shutdown(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleWithin)
		defer cancel()
	}
	return errors.Join(l.Close(), l.base.hub.permits.drain(ctx, []*Limiter{l.base}))
}

// stop ends the waits of all calls, and sends permits without a call back. The limiter is closed.
func (l *ConcurrencyLimiter) stop() {
	now := l.base.clock.Now()
	l.each(func(e *permitEntry) {
		e.shard.mu.Lock()
		if e.dropped {
			e.shard.mu.Unlock()
			return
		}
		c := l.conditions(e, now)
		c.Limit = 0 // no call fits
		for w := e.Denied(&c, now); w != nil; w = e.Denied(&c, now) {
			w.Caller.(*permitCall).end(e, permitShut, 0)
		}
		e.turn(now)
	})
}

// ended frees the name of a closed limiter without keys.
func (l *ConcurrencyLimiter) ended() {
	if l.keys.Load() == 0 {
		l.base.hub.forget(l.base)
	}
}

// drain waits until closed limiters hold no permits. Of a key whose part of Redis is away, it waits for running calls only.
func (m *membership) drain(ctx context.Context, limiters []*Limiter) error {
	t := time.NewTicker(keys.Tick)
	defer t.Stop()
	for {
		var running, booked int64
		for _, l := range limiters {
			if l.flight == nil {
				continue
			}
			l.flight.each(func(e *permitEntry) {
				e.shard.mu.Lock()
				defer e.shard.mu.Unlock()
				running += e.Used()
				if !m.hub.broken(e.tag) {
					booked += e.Booked()
				}
			})
		}
		if booked == 0 && running == 0 {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if running == 0 { // Redis takes them off when the process has left
				return nil
			}
			return fmt.Errorf("hybrid: Shutdown ended with %d permits of calls that still run: %w", running, ctx.Err())
		}
	}
}
