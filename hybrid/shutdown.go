package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/inflight"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// This file has the end of a hub: what it pays, gives back and waits for.

// Shutdown stops decisions, pays the units owed to Redis, returns leased units that were not spent, waits for calls
// that hold permits, leaves the fleet, and closes the hub. It stops when ctx ends, or after 5 s if ctx has no deadline.
// While Redis is away, it tries once, for at most 200 ms, and pays nothing if Redis does not answer. Units that are
// unpaid then are lost, counted, and reported in the error. So are permits of running calls: the fleet gives them to
// others, about 3 s after the first call that they refuse.
func (h *Hub) Shutdown(ctx context.Context) error {
	for _, l := range h.all() {
		l.stop()
		if l.calls != nil {
			l.calls.in.Stop()
		}
	}
	err := h.settle(ctx, h.all()...)
	return errors.Join(err, h.Close())
}

// settleWithin bounds a Shutdown whose ctx has no deadline, and lastTryFor the last message to a Redis that is away.
const (
	settleWithin = 5 * time.Second
	lastTryFor   = 200 * time.Millisecond
)

// settle pays the units that limiters owe, and takes the limiters out of the fleet. They make no more decisions, so the
// units owed only decrease.
func (h *Hub) settle(ctx context.Context, limiters ...*base) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleWithin)
		defer cancel()
	}
	leased := drainLeases(ctx, limiters)
	owing, err := h.payAll(ctx, limiters)
	if ctx.Err() == nil && !h.gone.Load() {
		drained := h.permits.Drain(ctx, flying(limiters)...)
		if err == nil && drained == nil && leased == nil {
			h.leave(limiters)
			return nil
		}
		return errors.Join(h.unpaid(owing, err), leased, drained)
	}
	return errors.Join(h.unpaid(owing, err), leased)
}

// unpaid returns the error of a Shutdown that ended with entries that owe, because of err.
func (h *Hub) unpaid(owing []*keys.Entry, err error) error {
	if err == nil {
		return nil
	}
	var owed int64
	for _, e := range owing {
		_, units, _ := e.Unsettled()
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

// payAll syncs the entries of limiters until none owes units or holds leased units that Redis takes back. When ctx ends
// first, it returns the unfinished entries. It also waits for syncs in flight that pay nothing, because the counters
// would miss the units that they bring. Without Redis it does not wait for these, because they have nothing to lose. It
// polls every tick: it cannot wait for idle lanes, because other limiters share them. It does not wait for a client
// that was closed, nor for a Redis that is away and does not answer one more message.
func (h *Hub) payAll(ctx context.Context, limiters []*base) (owing []*keys.Entry, err error) {
	t := time.NewTicker(keys.Tick)
	defer t.Stop()
	dues, tried := h.dues(limiters), make([]bool, len(h.breakers))
	for len(dues) > 0 {
		if h.gone.Load() {
			return slices.Concat(dues...), redis.ErrClosed
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return slices.Concat(dues...), ctx.Err()
		}
		var away []*keys.Entry
		dues, away = h.reachable(ctx, again(dues, (*keys.Entry).PaysOff), tried)
		owing = append(owing, away...)
	}
	if len(owing) > 0 {
		err = hybridlimit.ErrUnavailable
	}
	return owing, err
}

// reachable returns the lines whose Redis may be asked, and the entries of the other lines. Each Redis that is away is
// asked once, all at the same time. tried has those that were, by server.
func (h *Hub) reachable(ctx context.Context, dues [][]*keys.Entry, tried []bool) (left [][]*keys.Entry, away []*keys.Entry) {
	var wg sync.WaitGroup
	for _, line := range dues {
		if server := h.server(line[0].Tag()); h.broken(server) && !tried[server] {
			tried[server] = true
			wg.Go(func() { h.lastTry(ctx, server) })
		}
	}
	wg.Wait()
	for _, line := range dues {
		if server := h.server(line[0].Tag()); tried[server] && h.broken(server) {
			away = append(away, line...)
		} else {
			left = append(left, line)
		}
	}
	return left, away
}

// lastTry sends an empty batch to a Redis that is away. An answer closes the breaker.
func (h *Hub) lastTry(ctx context.Context, server int) {
	br := h.breaker(server)
	br.RetryNow()
	call, ok := br.Begin()
	if !ok { // a probe is in flight: it is the last try
		for began := time.Now(); br.State() == breaker.HalfOpen && time.Since(began) < lastTryFor && ctx.Err() == nil; {
			time.Sleep(keys.Tick)
		}
		return
	}
	h.clock.Begin()
	defer h.clock.End()
	bounded, cancel := context.WithTimeout(ctx, lastTryFor)
	defer cancel()
	began := time.Now()
	_, err := h.runner.Batch(bounded, wire.Envelope{
		Key: h.names.Envelope(server, h.process+".last"), Epoch: h.names.Epoch(server), Seq: 1, TTL: ratesync.EnvelopeTTL,
	}, nil)
	h.heart.Messages.Add(1)
	call.End(h.engine.Outcome(lastTryFor, time.Since(began), err))
}

// dues begins to pay for all entries of limiters. It returns those that are not finished, in a line for each server.
func (h *Hub) dues(limiters []*base) [][]*keys.Entry {
	dues := make([][]*keys.Entry, len(h.breakers))
	for _, l := range limiters {
		l.rates.each(func(e *keys.Entry) {
			if !e.PaysOff() {
				server := h.server(e.Tag())
				dues[server] = append(dues[server], e)
			}
		})
	}
	return slices.DeleteFunc(dues, func(line []*keys.Entry) bool { return len(line) == 0 })
}

// paysNow is the number of unfinished entries that one tick visits, over all servers. An entry that needs a second sync
// gets it at such a visit, and Redis cannot pay many more in a tick. A visit of all entries would take as long as Redis
// takes to pay them.
const paysNow = 256

// again visits lines of entries, and drops the finished ones. In each line it stops after a number of unfinished
// entries, which then stand at the end of the line: the syncs of the others are most likely not answered yet, and a
// tick must not visit all of them. It returns the lines that are left.
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

// Close stops decisions at once and waits for all goroutines. It pays no units:
// units that are owed and not yet sent are lost and counted. It is idempotent.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	limiters, views := h.all(), h.views()
	for _, l := range limiters {
		if l.rates != nil {
			l.rates.shut()
			continue
		}
		l.shut()
		if l.calls != nil {
			l.calls.in.Stop()
		}
	}
	h.cancel()
	h.wg.Wait()
	h.resync.Close()
	h.engine.Close()
	h.runner.Close()
	h.clock.Close()
	for _, v := range views {
		v.terms.WriteOff()
	}
	for _, l := range limiters {
		if l.leased != nil {
			l.leased.in.WriteOff()
		}
	}
	return h.metrics.Close()
}

// leave takes limiters of this process out of their fleets.
func (h *Hub) leave(limiters []*base) {
	var parties []*member.Party
	for _, l := range limiters {
		parties = append(parties, l.party)
	}
	h.heart.Leave(parties)
}

// drainLeases gives leased rates back, of all limiters at the same time.
func drainLeases(ctx context.Context, limiters []*base) error {
	errs := make([]error, len(limiters))
	var wg sync.WaitGroup
	for i, l := range limiters {
		if l.leased != nil {
			wg.Go(func() { errs[i] = l.leased.in.Drain(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// flying returns the limiters of calls in flight.
func flying(limiters []*base) []*inflight.Limiter {
	var out []*inflight.Limiter
	for _, l := range limiters {
		if l.calls != nil {
			out = append(out, l.calls.in)
		}
	}
	return out
}
