package hybrid

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// tick is the time between two epochs of the clock.
const tick = clock.Tick

// entry is one key in memory: its account behind a lock, and the word, a packed account.Budget, from which the common path
// spends without the lock.
type entry struct {
	// Finding the entry and admitting take one line of the cache: layout_test.go.
	name  string         // the caller's key
	short [shortKey]byte // where name lies if it fits
	word  atomic.Uint64
	rest  atomic.Uint64                // a float64: see left
	plan  atomic.Pointer[account.Plan] // changed under mu

	shut atomic.Int64 // account.DenyUntil
	ends atomic.Int64 // ns: when the window ends; 0: it is a bucket, or not known

	lim  *Limiter
	node ratesync.Node

	mu      sync.Mutex // guards the rest; never held across I/O; by lock and unlock
	*whole             // while mu is held, and while the account does not fit compact
	compact account.Compact
	dead    bool // evicted: look the key up again
}

// whole is the part of an entry that its lock guards.
type whole struct {
	account account.Account
	waiters account.Waiters
}

// shortKey is how long a key may be that lies in its entry, where comparing it touches no other memory.
const shortKey = 24

// newEntry is an entry for a key, of which it keeps a copy: the caller's string may be a piece of a request, or of a buffer that
// is about to be used again.
func newEntry(l *Limiter, key string) *entry {
	e := &entry{lim: l}
	if len(key) > shortKey {
		e.name = strings.Clone(key)
		return e
	}
	e.name = unsafe.String(&e.short[0], copy(e.short[:], key)) // which is not written to again
	return e
}

// is reports whether the entry is the key's.
func (e *entry) is(key string) bool {
	if len(key) > shortKey {
		return e.name == key
	}
	return len(e.name) == len(key) && string(e.short[:len(key)]) == key
}

// tag is the hash partition that the key is in.
func (e *entry) tag() int { return int(e.node.Tag) }

// wholes keeps the wholes of entries that do not need theirs. A key needs several times as much memory while something is on
// its way, waits or is booked as it needs between calls.
var wholes = sync.Pool{New: func() any { return new(whole) }}

func (e *entry) lock() {
	e.mu.Lock()
	e.wake()
}

func (e *entry) tryLock() bool {
	if !e.mu.TryLock() {
		return false
	}
	e.wake()
	return true
}

func (e *entry) wake() {
	if e.whole == nil {
		e.whole = wholes.Get().(*whole)
		e.account = e.compact.Expand()
	}
}

func (e *entry) unlock() {
	e.settleDown()
	e.mu.Unlock()
}

// settleDown gives up the whole where the compact form says the same.
func (e *entry) settleDown() {
	if e.waiters.Len() > 0 || e.account.OnItsWay() {
		return
	}
	compact, ok := e.account.Compact()
	if !ok {
		return
	}
	e.compact = compact
	*e.whole = whole{}
	wholes.Put(e.whole)
	e.whole = nil
}

// begin takes back the word and ends leases that are over. Every event starts here.
func (e *entry) begin(now int64) {
	spent, expired := e.account.Begin(account.UnitsOf(e.word.Swap(0)), now)
	e.lim.count.drained(spent.Kind, spent.Units)
	if expired > 0 {
		e.lim.count.expired.Add(expired)
	}
}

// end loads the word, which is good from the epoch that was read before the event's now.
func (e *entry) end(c *account.Conditions, epoch uint64, now int64) {
	var b account.Budget
	var until int64
	switch p := e.plan.Load(); {
	case e.lim.wordless() || e.lim.outdated(p): // asked after the epoch was read: see Limiter.stop, changeSwitch and SetLimit
	case e.lim.exactly(p): // what the fallback left is settled like any other, and decides nothing
	default:
		b, until = e.account.Load(c, now)
	}
	e.estimate(e.plan.Load(), e.account.Remaining(c, now)-b.Spendable())
	e.ends.Store(e.windowEnd(c, now))
	if b.Kind == account.DenyBudget {
		e.shut.Store(e.account.DenyUntil(c))
	}
	e.word.Store(b.Pack(clock.GoodUntil(epoch, now, min(until, e.lim.store.turnover.notedBy(now)))))
}

// conditions is what an event of the entry needs to know now. Call it under e.mu.
func (e *entry) conditions(p *account.Plan, now int64) account.Conditions {
	c := e.lim.conditions(p, now)
	if c.Broken = e.lim.alone(e.tag()); c.Broken {
		c.Fallback.Ends = e.windowEnd(&c, now)
	}
	return c
}

// estimate notes the estimate of the fleet's units beyond the word's; negative is debt. A word is good for long, and meanwhile
// units come back: so the line is kept on which they do, by its value at the time 0 of the clock that the common path reads.
// (Units of windows do not come back in this sense.)
func (e *entry) estimate(p *account.Plan, units int64) {
	e.rest.Store(math.Float64bits(float64(units) - p.PerNs*float64(e.lim.hub.clock.Rough())))
}

// units is that estimate by the time of the clock.
func (e *entry) units(p *account.Plan, c *clock.Clock) float64 {
	return math.Float64frombits(e.rest.Load()) + p.PerNs*float64(c.Rough())
}

// floatSlack is how many units an estimate in floats may be wrong by.
const floatSlack = 1e-3

// left is the estimate in whole units.
func (e *entry) left(p *account.Plan) int64 {
	return int64(math.Floor(e.units(p, e.lim.hub.clock) + floatSlack))
}

// windowEnd is until when the window lasts: by Redis's clock, or else at least, by the view; 0: not known, or no window.
func (e *entry) windowEnd(c *account.Conditions, now int64) int64 {
	if end := e.lim.hub.clocks.windowEnd(e.tag(), c.Window.Period, now); end > 0 {
		return end
	}
	return e.account.WindowEnds()
}

// Node is for the sync engine.
func (e *entry) Node() *ratesync.Node { return &e.node }

// Freeze is for the sync engine. Its time is a little older than the epoch's, and a word must not be: it is not used.
func (e *entry) Freeze(time.Time) (wire.Op, bool) {
	if e.lim.mute() {
		e.quiet()
		return wire.Op{}, false
	}
	op, age, ok := e.freeze()
	if ok {
		e.lim.count.ops.Add(1)
		e.lim.hist.stale(age)
	}
	return op, ok
}

// freeze also returns the ns since the view was received; negative: there is none.
func (e *entry) freeze() (op wire.Op, age int64, ok bool) {
	l := e.lim
	e.lock()
	defer e.unlock()
	if e.dead {
		return wire.Op{}, -1, false
	}
	epoch, now := l.hub.clock.Stamp() // the sync may be due long after the last call
	if first := e.waiters.Front(); first != nil {
		e.adapt(first, now)
	}
	p := e.plan.Load()
	c := e.conditions(p, now)
	c.Lost = l.hub.resync.lost[e.tag()].Load()
	age = e.account.ViewAge(now)
	e.begin(now)
	said, books, ok := e.account.Send(&c, p, &e.waiters, now)
	l.count.book(books)
	e.end(&c, epoch, now)
	return wire.Op{Key: l.hub.names.State(e.tag(), l.cfg.Name, e.name), Limit: p.Limit, Op: said}, age, ok
}

// Settle is for the sync engine. The view counts as received now, under the lock: never earlier than it was.
func (e *entry) Settle(a ratesync.Answer) {
	l := e.lim
	e.lock()
	sent := e.waiters.Sent()
	defer l.found(sent.Bucket, a.Level) // last: the lock is free then
	ans := account.Answer{Answer: a.Answer, RedisNow: a.RedisNow, Sent: l.hub.clock.At(a.Sent)}
	if e.dead { // closed meanwhile
		l.count.book(e.account.ReceiveClosed(ans))
		e.unlock()
		return
	}
	epoch, now := l.hub.clock.Stamp()
	p := e.plan.Load()
	c := e.conditions(p, now)
	e.begin(now)
	l.hub.clocks.heard(e.tag(), a.RedisNow, ans.Sent, now)
	ans.At = l.hub.clocks.at(e.tag(), a.RedisNow, ans.Sent, now)
	answered, next, books := e.account.Receive(&c, p, &e.waiters, ans, now)
	l.count.book(books)
	e.end(&c, epoch, now)
	left, ends := e.account.Remaining(&c, now), e.windowEnd(&c, now)
	for _, w := range answered {
		w.Verdict.Left, w.Verdict.Ends = left, ends
		w.Out <- w.Verdict
	}
	e.unlock()
	e.sync(next)
}

// Drop is for the sync engine.
func (e *entry) Drop() {
	e.lock()
	defer e.unlock()
	e.lim.count.book(e.account.GiveUp(&e.waiters))
}

// sync queues the entry as an event wants. Call it without e.mu.
func (e *entry) sync(s account.Sync) {
	if s == account.SyncNot || e.lim.mute() {
		return
	}
	switch s {
	case account.SyncNow:
		e.lim.hub.engine.Enqueue(e.tag(), e, time.Time{})
	case account.SyncLazily:
		e.lim.hub.engine.Enqueue(e.tag(), e, e.lim.lazily(time.Now()))
	}
}

// adapt gives an entry another plan, of a limit that counts. Call it under e.mu.
func (e *entry) adapt(p *account.Plan, now int64) {
	old := e.plan.Load()
	if old == p {
		return
	}
	e.begin(now)
	e.plan.Store(p)
	e.account.Adapt(old, p, e.lim.share(old, e.lim.fleet.Size()), now)
}

// leave takes a waiting call out. If it was answered meanwhile, that answer counts.
func (e *entry) leave(w *account.Waiter) (account.Verdict, bool) {
	e.lock()
	defer e.unlock()
	if !w.Leave() {
		return <-w.Out, true
	}
	return account.Verdict{}, false
}

// tryEvict marks the entry dead unless it owes, waits, or is in use.
func (e *entry) tryEvict(now int64) bool {
	if !e.tryLock() {
		return false
	}
	defer e.unlock()
	e.begin(now)
	alone := e.lim.alone(e.tag())
	if alone && e.account.FallbackOwed() > 0 {
		e.lim.count.forgiven.Add(e.account.Forgive(e.lim.share(e.plan.Load(), e.lim.fleet.Size()), now))
	}
	if e.waiters.Len() > 0 || !e.account.Idle() {
		return false
	}
	if alone {
		e.goOut(now)
	}
	e.lim.count.expired.Add(e.account.Held())
	e.die()
	return true
}

// die marks the entry dead, and takes it out of its lane's queue: else a key that is forgotten while Redis is away would stay in
// memory until Redis is back. A sync of it that is still wanted comes to nothing. Call it under e.mu: a lane's lock comes after an
// entry's, and no method of an entry is called under it.
func (e *entry) die() {
	e.dead = true
	e.lim.hub.engine.Remove(e.tag(), e)
}

var _ ratesync.Item = (*entry)(nil)
