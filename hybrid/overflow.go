package hybrid

import (
	"log/slog"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// This file is keys for which there is no memory while Redis does not answer:
// memory is full of keys that owe. They share an allowance, of one cell for each
// key that memory holds: a key has the cell that its hash says, and in it no more
// than it would have by itself. So no key has more than its share in it, all
// together have as much as the keys in memory, and who makes up keys to deny
// others has to use all of that up, again and again. Which cell a key has nobody
// outside knows, since the hash is seeded. See
// docs/decisions/0027-an-allowance-for-keys-without-memory.md.

// leastCells is how many cells there are at least.
const leastCells = 1024

// overflow is a limiter's allowance. Its cells are there only while one of them
// is not full.
type overflow struct {
	cells atomic.Pointer[cells]
	quiet atomic.Int64 // ns: until then nothing more is logged
}

// cells are shares that many keys have together.
type cells struct {
	began int64          // ns
	until atomic.Int64   // ns: when all are full again
	full  []atomic.Int64 // ns: when one is; 0: nobody has used it
}

func newCells(keys int, now int64) *cells {
	c := &cells{began: now, full: make([]atomic.Int64, max(keys, leastCells))}
	c.until.Store(now)
	return c
}

// of is the cell of a hash: the high bits choose, since the low ones chose the
// shard of memory that was full.
func (c *cells) of(hash uint64) *atomic.Int64 {
	i, _ := bits.Mul64(hash, uint64(len(c.full)))
	return &c.full[i]
}

// lacks is how many units a cell that is full at a time lacks now, for a key of
// these terms.
func (c *cells) lacks(full int64, t account.Fallback, now int64) float64 {
	if full == 0 { // as share.start: a share below one unit begins with that
		full = c.began + spans(t.Most()-t.Cap, t)
	}
	return float64(max(0, full-now)) * t.PerNs
}

// spans is the ns in which units come back, rounded up.
func spans(units float64, t account.Fallback) int64 {
	return int64(min(math.Ceil(units/t.PerNs), 1<<61))
}

// level is how many units a key has left in its cell.
func (c *cells) level(hash uint64, t account.Fallback, now int64) float64 {
	return max(0, t.Most()-c.lacks(c.of(hash).Load(), t, now))
}

// take takes n units out of a cell, and returns how many it lacked before.
func (c *cells) take(hash uint64, t account.Fallback, n, now int64) (lacked float64, ok bool) {
	cell := c.of(hash)
	for {
		was := cell.Load()
		lacked = c.lacks(was, t, now)
		if lacked+float64(n) > t.Most()+floatSlack {
			return lacked, false
		}
		full := now + spans(lacked+float64(n), t)
		if cell.CompareAndSwap(was, full) {
			rise(&c.until, full)
			return lacked, true
		}
	}
}

// put puts n units back that were taken just now.
func (c *cells) put(hash uint64, t account.Fallback, n int64) {
	c.of(hash).Add(-spans(float64(n), t))
}

// drain has a cell hold level units at most.
func (c *cells) drain(hash uint64, t account.Fallback, level float64, now int64) {
	full := now + spans(t.Most()-level, t)
	rise(c.of(hash), full)
	rise(&c.until, full)
}

// spare is the cells, made where there are none.
func (l *Limiter) spare(now int64) *cells {
	for {
		if c := l.overflow.cells.Load(); c != nil {
			return c
		}
		l.overflow.cells.CompareAndSwap(nil, newCells(l.cfg.MaxKeys, now))
	}
}

// release gives up cells that are all full. It may be that somebody is taking
// units from them: so much more may be admitted, once.
func (o *overflow) release(now int64) {
	if c := o.cells.Load(); c != nil && now >= c.until.Load() {
		o.cells.CompareAndSwap(c, nil)
	}
}

// withoutMemory decides a call that Redis does not answer, for a key that memory
// has no room for. What it admits is counted, and nobody owes it: Redis never
// hears of it.
func (l *Limiter) withoutMemory(key string, at place, n int64) account.Verdict {
	if l.cfg.Mode == ModeStrict && !l.alone(at.tag) { // as state.without
		return account.Verdict{Action: account.Deny, Source: hybridlimit.SourceTimeout, Retry: max(int64(l.hub.engine.RTT()), int64(tick))}
	}
	v := l.fromOverflow(key, at.plan, n)
	l.countOverflow(n, v.Action == account.Admit)
	return v
}

// fromOverflow is withoutMemory, and counts nothing.
func (l *Limiter) fromOverflow(key string, r *account.Plan, n int64) account.Verdict {
	now := l.hub.clock.Now()
	v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceFallback, Retry: int64(l.cfg.SyncInterval)}
	t := l.share(r, l.fleet.Size())
	switch {
	case t.Policy == account.FallbackAllowAll:
		v.Action, v.Retry = account.Admit, 0
	case t.Counts():
		lacked, ok := l.spare(now).take(l.store.hash(key), t, n, now)
		switch {
		case ok:
			v.Action, v.Retry, v.Left = account.Admit, 0, int64(t.Most()-lacked)-n
			if r.Bucket.Queue {
				v.Delay = spans(lacked, t)
			}
		case float64(n) <= t.Most():
			v.Retry, v.Left = spans(lacked+float64(n)-t.Most(), t)+1, int64(t.Most()-lacked)
		}
	}
	return v
}

// countOverflow counts a decision of withoutMemory, and says now and then that
// there are such.
func (l *Limiter) countOverflow(n int64, admitted bool) {
	l.count.overflow.Add(1)
	if admitted {
		l.count.dropped.Add(n)
	}
	now := l.hub.clock.Now()
	if quiet := l.overflow.quiet.Load(); now >= quiet && l.overflow.quiet.CompareAndSwap(quiet, now+overflowQuiet) {
		l.hub.log.event(msgOverflow, slog.String("limiter", l.cfg.Name), slog.String("fallback", l.cfg.Fallback.String()),
			slog.Int("keys", l.store.len()), slog.Int("shares", max(l.cfg.MaxKeys, leastCells)), slog.Int64("decisions", l.count.overflow.Load()))
	}
}

// overflowQuiet is how long nothing more is logged of one limiter's overflow.
const overflowQuiet = 10e9 // ns

// comeIn has an entry that is about to come into memory begin with what its key
// has left in the overflow: it may have used the rest of its share there.
func (e *entry) comeIn(r *account.Plan, now int64) {
	c := e.lim.overflow.cells.Load()
	if c == nil {
		return
	}
	t := e.lim.share(r, e.lim.fleet.Size())
	if !t.Counts() {
		return
	}
	if level := c.level(e.lim.store.hash(e.name), t, now); level < t.Cap {
		e.lock()
		e.account.StartFallbackAt(level, now)
		e.unlock()
	}
}

// goOut has the overflow hold no more for a key than its entry has, which is
// forgotten while Redis does not answer: else whoever has used his part up would
// have another, once others have driven him out. Call it under e.mu.
func (e *entry) goOut(now int64) {
	l := e.lim
	c := e.conditions(e.plan.Load(), now)
	if !c.Fallback.Counts() {
		return
	}
	if level := e.account.FallbackLeft(&c, now); level < c.Fallback.Cap-floatSlack {
		l.spare(now).drain(l.store.hash(e.name), c.Fallback, level, now)
	}
}
