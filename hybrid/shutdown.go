package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/account"
)

// This file has the end of a hub: what it pays, gives back and waits for.

// Shutdown stops decisions, pays the units owed to Redis, returns leased units
// that were not spent, waits for calls that hold permits, leaves the fleet, and
// closes the hub. It stops when ctx ends, or after 5 s if ctx has no
// deadline. Units that are unpaid then are lost, counted, and reported in the
// error. So are permits of running calls: the fleet gives them to others, about 3 s
// after the first call that they refuse.
func (h *Hub) Shutdown(ctx context.Context) error {
	for _, l := range h.all() {
		l.stop()
		if l.flight != nil {
			l.flight.stop()
		}
	}
	err := h.settle(ctx, h.all()...)
	return errors.Join(err, h.Close())
}

// settleWithin bounds a Shutdown whose ctx has no deadline: a program must be
// able to end while Redis is down.
const settleWithin = 5 * time.Second

// settle pays the units that limiters owe, and takes the limiters out of the fleet. They make no more decisions, so the units owed
// only decrease.
func (h *Hub) settle(ctx context.Context, limiters ...*Limiter) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleWithin)
		defer cancel()
	}
	var owing []*entry
	for _, l := range limiters {
		l.each(func(e *entry) { owing = append(owing, e) })
	}
	owing, err := h.payAll(ctx, owing)
	if err == nil {
		if err = h.permits.drain(ctx, limiters); err != nil {
			return err
		}
		h.leave(limiters...)
		return nil
	}
	var owed int64
	for _, e := range owing {
		_, units, _ := e.unsettled()
		owed += units
	}
	if owed == 0 { // only syncs that pay nothing are unfinished
		return nil
	}
	if h.gone.Load() {
		return fmt.Errorf("hybrid: Shutdown ended with %d units owed: close the client of Redis after the hub: %w", owed, redis.ErrClosed)
	}
	return fmt.Errorf("hybrid: Shutdown ended with %d units owed that Redis has not acknowledged: %w", owed, err)
}

// payAll syncs entries until none owes units or holds leased units that Redis takes back. When ctx ends first, it returns the
// unfinished entries. It also waits for syncs in
// flight that pay nothing, because the counters would miss the units that they bring. Without Redis it does not wait for these,
// because they have nothing to lose. It polls every tick: it cannot wait for idle lanes, because other limiters share them. It does
// not wait for a client that was closed.
func (h *Hub) payAll(ctx context.Context, entries []*entry) (owing []*entry, err error) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		owing = entries[:0]
		for _, e := range entries {
			switch _, open, onItsWay := e.unsettled(); {
			case open > 0:
				e.sync(account.SyncNow)
				owing = append(owing, e)
			case onItsWay && !e.lim.alone(e.tag()):
				owing = append(owing, e)
			}
		}
		if len(owing) == 0 {
			return nil, nil
		}
		entries = owing
		if h.gone.Load() {
			return owing, redis.ErrClosed
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return owing, ctx.Err()
		}
	}
}

// Close stops decisions at once and waits for all goroutines. It pays no units:
// units that are owed and not yet sent are lost and counted. It is idempotent.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	limiters := h.views()
	for _, l := range limiters {
		l.shut()
		if l.flight != nil {
			l.flight.stop()
		}
	}
	h.cancel()
	h.wg.Wait()
	h.resync.close()
	h.engine.Close()
	h.runner.Close()
	h.clock.Close()
	for _, l := range limiters {
		l.writeOff()
	}
	return h.metrics.close()
}

// writeOff counts the units that a closed limiter owed and held, and logs its last denials. Syncs in flight may still arrive:
// Settle or Drop counts them.
func (l *Limiter) writeOff() {
	now := l.hub.clock.Now()
	l.store.each(func(e *entry) {
		e.lock()
		defer e.unlock()
		if e.dead {
			return
		}
		e.begin(now)
		e.die()
		l.count.book(e.account.Forget())
	})
	l.endDenials()
}

// unsettled returns two sums of the units that Redis has not acknowledged: admitted less given back (owed), and admitted plus given
// back (open). While Redis is asked, open has the leased units that Redis takes back. It also reports whether a sync is in flight.
func (e *entry) unsettled() (owed, open int64, onItsWay bool) {
	e.lock()
	defer e.unlock()
	e.begin(e.lim.hub.clock.Now())
	if open = e.account.Open(); !e.lim.alone(e.tag()) {
		open += e.account.MustReturn()
	}
	return e.account.Owed(), open, e.account.OnItsWay()
}
