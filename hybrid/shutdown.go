package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	owing, err := h.payAll(ctx, limiters)
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

// payAll syncs the entries of limiters until none owes units or holds leased units that Redis takes back. When ctx ends first, it
// returns the unfinished entries. It also waits for syncs in flight that pay nothing, because the counters would miss the units that
// they bring. Without Redis it does not wait for these, because they have nothing to lose. It polls every tick: it cannot wait for
// idle lanes, because other limiters share them. It does not wait for a client that was closed.
func (h *Hub) payAll(ctx context.Context, limiters []*Limiter) (owing []*entry, err error) {
	t := time.NewTicker(tick)
	defer t.Stop()
	dues := h.dues(limiters)
	for len(dues) > 0 {
		if h.gone.Load() {
			return slices.Concat(dues...), redis.ErrClosed
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return slices.Concat(dues...), ctx.Err()
		}
		dues = again(dues, (*entry).paysOff)
	}
	return nil, nil
}

// dues begins to pay for all entries of limiters. It returns those that are not finished, in a line for each tag.
func (h *Hub) dues(limiters []*Limiter) [][]*entry {
	dues := make([][]*entry, h.cfg.Tags)
	for _, l := range limiters {
		l.each(func(e *entry) {
			if !e.paysOff() {
				dues[e.tag()] = append(dues[e.tag()], e)
			}
		})
	}
	return slices.DeleteFunc(dues, func(line []*entry) bool { return len(line) == 0 })
}

// paysNow is the number of unfinished entries that one tick visits, over all tags. An entry that needs a second sync gets it at such
// a visit, and Redis cannot pay many more in a tick. A visit of all entries would take as long as Redis takes to pay them.
const paysNow = 256

// again visits lines of entries, and drops the finished ones. In each line it stops after a number of unfinished entries, which then
// stand at the end of the line: the syncs of the others are most likely not answered yet, and a tick must not visit all of them.
// It returns the lines that are left.
func again[E any](lines [][]E, finished func(E) bool) [][]E {
	most := max(1, paysNow/max(1, len(lines)))
	left := lines[:0]
	for _, line := range lines {
		kept, seen := 0, 0
		for ; seen < len(line) && kept < most; seen++ {
			if !finished(line[seen]) {
				line[kept] = line[seen]
				kept++
			}
		}
		if line = append(line[seen:], line[:kept]...); len(line) > 0 {
			left = append(left, line)
		}
	}
	return left
}

// paysOff queues the entry's sync if there is something to pay or to return. It reports whether the entry is finished.
func (e *entry) paysOff() bool {
	if e.mu.Lock(); e.owesNothing() {
		e.mu.Unlock()
		return true
	}
	e.mu.Unlock()
	switch _, open, onItsWay := e.unsettled(); {
	case open > 0:
		e.sync(account.SyncNow)
		return false
	case onItsWay:
		return e.lim.alone(e.tag())
	}
	return true
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
		e.mu.Lock()
		if e.dead || e.dieEmpty() {
			e.mu.Unlock()
			return
		}
		e.wake()
		defer e.unlock()
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
