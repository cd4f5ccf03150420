package hybrid

import (
	"log/slog"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// This file decides for keys that find no memory while Redis does not answer, because memory is full of keys that
// owe. These keys share an allowance. It has one cell for each key that memory can hold. The hash of a key chooses
// its cell, and a cell holds no more than the key's own share. So a key never has more than its share there, and all
// these keys together have as much as the keys in memory. An attacker who makes up keys to deny others must use up
// the whole allowance, again and again. Outsiders cannot compute the cell of a key, because the hash is seeded. See
// docs/decisions/0027-an-allowance-for-keys-without-memory.md.

// leastCells is the smallest number of cells.
const leastCells = 1024

// overflow is a limiter's allowance. Its cells exist only while at least one of them is not full.
type overflow struct {
	cells atomic.Pointer[cells]
	quiet atomic.Int64 // ns: the next line is logged after this time
}

// cells are fallback shares. Several keys use one cell together.
type cells struct {
	began int64          // ns
	until atomic.Int64   // ns: time at which all cells are full again
	full  []atomic.Int64 // ns: time at which each cell is full again; 0: never used
}

func newCells(keys int, now int64) *cells {
	c := &cells{began: now, full: make([]atomic.Int64, max(keys, leastCells))}
	c.until.Store(now)
	return c
}

// of returns the cell of a hash. The high bits choose, because the low bits chose the shard of memory that was full.
func (c *cells) of(hash uint64) *atomic.Int64 {
	i, _ := bits.Mul64(hash, uint64(len(c.full)))
	return &c.full[i]
}

// lacks returns how many units a cell lacks at now, for a key with the fallback t. full is the time at which the cell
// is full again.
func (c *cells) lacks(full int64, t account.Fallback, now int64) float64 {
	if full == 0 { // as at the start of a fallback bucket: a share below one unit begins at that share
		full = c.began + spans(t.Most()-t.Cap, t)
	}
	return float64(max(0, full-now)) * t.PerNs
}

// spans returns the ns in which the units come back, rounded up.
func spans(units float64, t account.Fallback) int64 {
	return int64(min(math.Ceil(units/t.PerNs), 1<<61))
}

// level returns how many units a key has left in its cell.
func (c *cells) level(hash uint64, t account.Fallback, now int64) float64 {
	return max(0, t.Most()-c.lacks(c.of(hash).Load(), t, now))
}

// take takes n units out of a cell. It returns the units that the cell lacked before.
func (c *cells) take(hash uint64, t account.Fallback, n, now int64) (lacked float64, ok bool) {
	cell := c.of(hash)
	for {
		was := cell.Load()
		lacked = c.lacks(was, t, now)
		if lacked+float64(n) > t.Most()-t.Floor+floatSlack {
			return lacked, false
		}
		full := now + spans(lacked+float64(n), t)
		if cell.CompareAndSwap(was, full) {
			rise(&c.until, full)
			return lacked, true
		}
	}
}

// put returns n units that were taken just now.
func (c *cells) put(hash uint64, t account.Fallback, n int64) {
	c.of(hash).Add(-spans(float64(n), t))
}

// drain lowers a cell to at most level units.
func (c *cells) drain(hash uint64, t account.Fallback, level float64, now int64) {
	full := now + spans(t.Most()-level, t)
	rise(c.of(hash), full)
	rise(&c.until, full)
}

// spare returns the cells, and makes them if there are none.
func (l *Limiter) spare(now int64) *cells {
	for {
		if c := l.overflow.cells.Load(); c != nil {
			return c
		}
		l.overflow.cells.CompareAndSwap(nil, newCells(l.cells(), now))
	}
}

// cells returns the number of cells. Those of a limiter with classes have all its fallback buckets. Four for each key make it rare
// that two keys share one.
func (l *Limiter) cells() int {
	if l.classed() {
		return 4 * l.cfg.MaxKeys
	}
	return l.cfg.MaxKeys
}

// linger is the time (ns) for which the cells stay after all are full, so that a concurrent take is not lost with them.
const linger = 1e9

// release drops the cells when all have been full for a while. A take that is paused for longer may still use the old
// cells: that much more can be admitted, once.
func (o *overflow) release(now int64) {
	if c := o.cells.Load(); c != nil && now >= c.until.Load()+linger {
		o.cells.CompareAndSwap(c, nil)
	}
}

// withoutMemory decides a call that Redis does not answer, for a key that finds no room in memory. The admitted units
// are counted as dropped and not owed: Redis never learns of them.
func (l *Limiter) withoutMemory(key string, at place, n int64) account.Verdict {
	if l.Mode() == ModeStrict && !l.alone(at.tag) { // as account.Account.without
		return account.Verdict{Action: account.Deny, Source: hybridlimit.SourceTimeout, Retry: max(int64(l.hub.engine.RTT()), int64(tick))}
	}
	v := l.fromOverflow(key, at.plan, n)
	l.countOverflow(n, v.Action == account.Admit)
	return v
}

// fromOverflow is withoutMemory without the counting.
func (l *Limiter) fromOverflow(key string, r *account.Plan, n int64) account.Verdict {
	now := l.hub.clock.Now()
	v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceFallback, Retry: int64(l.cfg.SyncInterval)}
	t := l.share(r, l.fleet.Size())
	switch {
	case t.Policy == account.FallbackAllowAll:
		v.Action, v.Retry = account.Admit, 0
	case t.Counts():
		lacked, ok := l.spare(now).take(l.cell(key), t, n, now)
		switch {
		case ok:
			v.Action, v.Retry, v.Left = account.Admit, 0, int64(t.Most()-lacked)-n
			if r.Bucket.Queue {
				v.Delay = spans(lacked, t)
			}
		case float64(n) <= t.Most()-t.Floor:
			v.Retry, v.Left = spans(lacked+float64(n)+t.Floor-t.Most(), t)+1, int64(t.Most()-lacked)
		}
	}
	return v
}

// countOverflow counts a decision of withoutMemory, and logs a line about them from time to time.
func (l *Limiter) countOverflow(n int64, admitted bool) {
	l.count.overflow.Add(1)
	if admitted {
		l.count.dropped.Add(n)
	}
	now := l.hub.clock.Now()
	if quiet := l.overflow.quiet.Load(); now >= quiet && l.overflow.quiet.CompareAndSwap(quiet, now+overflowQuiet) {
		l.hub.log.event(msgOverflow, slog.String("limiter", l.cfg.Name), slog.String("fallback", l.live.Load().fallback.String()),
			slog.Int("keys", l.store.len()), slog.Int("shares", max(l.cells(), leastCells)), slog.Int64("decisions", l.count.overflow.Load()))
	}
}

// overflowQuiet is the least time between two lines about the overflow of one limiter.
const overflowQuiet = 10e9 // ns

// comeIn starts the fallback bucket of a new entry at the level that its key has left in the overflow: the key may
// have used the rest of its share there.
func (e *entry) comeIn(r *account.Plan, now int64) {
	c := e.lim.overflow.cells.Load()
	if c == nil || e.lim.classed() { // a limiter with classes counts all its keys there
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

// goOut lowers the key's cell to the level of an entry that is forgotten while Redis does not answer. Otherwise a
// caller who has used up a share would get another one after other keys have evicted this one. Call it under e.mu.
func (e *entry) goOut(now int64) {
	l := e.lim
	c := e.conditions(e.plan.Load(), now)
	if !c.Fallback.Counts() || l.classed() {
		return
	}
	if level := e.account.FallbackLeft(&c, now); level < c.Fallback.Cap-floatSlack {
		l.spare(now).drain(l.store.hash(e.name), c.Fallback, level, now)
	}
}
