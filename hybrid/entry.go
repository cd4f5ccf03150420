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
	"github.com/hybridlimit/hybridlimit/internal/refresh"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// tick is the time between two epochs of the clock.
const tick = clock.Tick

// entry is one key in memory. A lock guards its account. The word is a packed account.Budget: the fast path spends from it
// without the lock.
type entry struct {
	// The fast path reads one cache line of the entry: see layout_test.go.
	name  string         // the caller's key
	short [shortKey]byte // holds the bytes of name, if they fit
	word  atomic.Uint64
	rest  atomic.Uint64                // a float64: see estimate
	plan  atomic.Pointer[account.Plan] // changed under mu

	shut atomic.Int64 // account.DenyUntil
	ends atomic.Int64 // ns: end of the window; 0: not known, or no window

	chain atomic.Pointer[entry] // the next one in its chain of the table; changed under the lock of the shard

	of   *terms
	node ratesync.Node

	mu      sync.Mutex       // guards the fields below; never held across I/O; use lock and unlock
	*whole                   // set while mu is held, and while the account does not fit compact
	asks    refresh.Deadline // the next question to Config.LimitFor, whose note is a kind of standing limit; see dead
	compact account.Compact
}

// whole is the part of an entry that its lock guards.
type whole struct {
	account account.Account
	waiters account.Waiters
}

// shortKey is the longest key, in bytes, that is stored inside its entry. Comparing such a key touches no other memory.
const shortKey = 24

// newEntry returns an entry with a copy of the key: the caller's string may be a piece of a request, or of a buffer that will be
// used again.
func newEntry(t *terms, key string) *entry {
	e := &entry{of: t}
	if len(key) > shortKey {
		e.name = strings.Clone(key)
		return e
	}
	e.name = unsafe.String(&e.short[0], copy(e.short[:], key)) // short is never written again
	return e
}

// is reports whether the entry is the key's.
func (e *entry) is(key string) bool {
	if len(key) > shortKey {
		return e.name == key
	}
	return len(e.name) == len(key) && string(e.short[:len(key)]) == key
}

// tag returns the hash partition of the key.
func (e *entry) tag() int { return int(e.node.Tag) }

// wholes recycles the wholes of entries that do not need theirs. A key with a sync in flight, a waiting call or a booking needs
// several times the memory of a key between calls.
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
		e.compact.Expand(&e.account)
	}
}

func (e *entry) unlock() {
	e.settleDown()
	e.mu.Unlock()
}

// settleDown replaces the whole by the compact form, if that loses nothing.
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

// begin takes back the budget and ends leases that are over. Every event starts here.
func (e *entry) begin(now int64) {
	spent, expired := e.account.Begin(account.UnitsOf(e.word.Swap(0)), now)
	e.of.count.Drained(spent.Kind, spent.Units)
	if expired > 0 {
		e.of.count.Expired.Add(expired)
	}
}

// end loads a new budget into the word. The budget is valid from the given epoch, which was read before now.
func (e *entry) end(c *account.Conditions, epoch uint64, now int64) {
	var b account.Budget
	var until int64
	asks, noted := e.asksAt(now), e.of.store.turnover.notedBy(now)
	switch p := e.plan.Load(); {
	case min(asks, noted) <= now: // only the slow path asks LimitFor, and notes a use
	case e.of.control.Wordless() || e.of.control.Outdated(p): // checked after the epoch was read: see Limiter.stop, changeSwitch and SetLimit
	case e.of.control.Exactly(p): // Redis decides; units that the fallback left are settled, and never loaded
	default:
		b, until = e.account.Load(c, now)
	}
	e.estimate(e.plan.Load(), e.account.Remaining(c, now)-b.Spendable())
	e.ends.Store(e.windowEnd(c, now))
	if b.Kind == account.DenyBudget {
		e.shut.Store(e.account.DenyUntil(c))
	}
	e.word.Store(b.Pack(clock.GoodUntil(epoch, now, min(until, noted, asks))))
}

// conditions returns the conditions of an event of the entry. Call it under e.mu.
func (e *entry) conditions(p *account.Plan, now int64) (c account.Conditions) {
	e.setConditions(&c, p, now)
	return c
}

// setConditions is conditions for zero Conditions in place. A copy of Conditions takes time.
func (e *entry) setConditions(c *account.Conditions, p *account.Plan, now int64) {
	e.of.setConditions(c, p, now)
	c.Fallback.Share = e
	if c.Broken = e.of.alone(e.tag()); c.Broken {
		c.Fallback.Ends = e.windowEnd(c, now)
	}
}

// estimate stores the estimate of the fleet's units without those of the budget; negative is debt. Units come back while the
// budget is valid, so the estimate is a line over time. It is stored as its value at time 0 of the rough clock. Its slope is
// PerNs, which is 0 for windows.
func (e *entry) estimate(p *account.Plan, units int64) {
	e.rest.Store(math.Float64bits(float64(units) - p.PerNs*float64(e.of.clock.Rough())))
}

// units returns that estimate at the present time of the rough clock.
func (e *entry) units(p *account.Plan, c *clock.Clock) float64 {
	return math.Float64frombits(e.rest.Load()) + p.PerNs*float64(c.Rough())
}

// floatSlack is the largest rounding error of an estimate in floats, in units.
const floatSlack = 1e-3

// left returns the estimate in whole units.
func (e *entry) left(p *account.Plan) int64 {
	return int64(math.Floor(e.units(p, e.of.clock) + floatSlack))
}

// windowEnd returns the end of the window by Redis's clock. While that clock is not known, it returns the earliest end that the
// view permits; 0: not known, or no window.
func (e *entry) windowEnd(c *account.Conditions, now int64) int64 {
	if end := e.of.clocks.WindowEnd(e.tag(), c.Window.Period, now); end > 0 {
		return end
	}
	return e.account.WindowEnds()
}

// Node implements ratesync.Item.
func (e *entry) Node() *ratesync.Node { return &e.node }

// Freeze implements ratesync.Item. It ignores the time of the engine, which is a little older than the epoch: the time of a
// budget must not be older than its epoch.
func (e *entry) Freeze(time.Time) (wire.Op, bool) {
	if e.of.control.Mute() {
		e.quiet()
		return wire.Op{}, false
	}
	op, age, ok := e.freeze()
	if ok {
		e.of.count.Ops.Add(1)
		e.of.hist.Stale(age)
	}
	return op, ok
}

// freeze also returns the ns since the view was received; negative: there is no view.
func (e *entry) freeze() (op wire.Op, age int64, ok bool) {
	t := e.of
	e.lock()
	defer e.unlock()
	if e.dead() {
		return wire.Op{}, -1, false
	}
	epoch, now := t.clock.Stamp() // the sync may be due long after the last call
	if first := e.waiters.Front(); first != nil {
		e.adaptBack(first, now)
	}
	p := e.plan.Load()
	c := e.conditions(p, now)
	c.Lost = t.lost(e.tag())
	age = e.account.ViewAge(now)
	e.begin(now)
	said, books, ok := e.account.Send(&c, p, &e.waiters, now)
	t.count.Book(books)
	e.end(&c, epoch, now)
	if !ok {
		e.lookAgain(&c, now)
	}
	return wire.Op{Key: t.names.State(e.tag(), t.name, e.name), Limit: p.Limit, Op: said}, age, ok
}

// Settle implements ratesync.Item. The view counts as received now, under the lock. This is never too early.
func (e *entry) Settle(a ratesync.Answer) {
	t := e.of
	e.lock()
	sent := e.waiters.Sent()
	defer t.found(sent.Bucket, a.Level) // runs last, when the lock is free
	ans := account.Answer{Answer: a.Answer, RedisNow: a.RedisNow, Sent: t.clock.At(a.Sent)}
	if e.dead() { // closed meanwhile
		t.count.Book(e.account.ReceiveClosed(ans))
		e.unlock()
		return
	}
	epoch, now := t.clock.Stamp()
	p := e.plan.Load()
	c := e.conditions(p, now)
	e.begin(now)
	t.clocks.Heard(e.tag(), a.RedisNow, ans.Sent, now)
	ans.At = t.clocks.At(e.tag(), a.RedisNow, ans.Sent, now)
	answered, next, books := e.account.Receive(&c, p, &e.waiters, ans, now)
	t.count.Book(books)
	e.end(&c, epoch, now)
	for _, w := range answered {
		e.describe(&w.Verdict, &c, now)
		w.Out <- w.Verdict
	}
	e.lookAgain(&c, now)
	wanting := e.account.Wanting(&c)
	e.unlock()
	e.sync(next)
	if wanting {
		t.wants(t.names.Digest(t.name, e.name))
	}
}

// lookAgain queues the entry for the time at which leased units may have to go back to Redis.
func (e *entry) lookAgain(c *account.Conditions, now int64) {
	if at := e.account.LookAt(c, now); at > 0 && !e.of.control.Mute() {
		if at > now && c.Window.Period == 0 { // with the syncs of other keys
			at += e.of.grid() - at%e.of.grid()
		}
		e.of.engine.Enqueue(e.tag(), e, e.of.clock.Time(at))
	}
}

// Uncertain implements ratesync.Item.
func (e *entry) Uncertain(op wire.Op) { e.of.count.Uncertain.Add(op.Asked()) }

// Drop implements ratesync.Item.
func (e *entry) Drop() {
	e.lock()
	defer e.unlock()
	e.of.count.Book(e.account.GiveUp(&e.waiters))
}

// sync queues the entry as an event asks for it. Call it without e.mu.
func (e *entry) sync(s account.Sync) {
	if s == account.SyncNot || e.of.control.Mute() {
		return
	}
	switch s {
	case account.SyncNow:
		e.of.engine.Enqueue(e.tag(), e, time.Time{})
	case account.SyncLazily:
		e.of.engine.Enqueue(e.tag(), e, e.of.lazily(time.Now()))
	}
}

// adapt gives the entry another plan. The plan must be of a limit that counts. Call it under e.mu.
func (e *entry) adapt(p *account.Plan, now int64) {
	old := e.plan.Load()
	if old == p {
		return
	}
	e.begin(now)
	e.plan.Store(p)
	lost := e.account.Adapt(old, p, now)
	e.of.count.Lost.Add(lost)
	c := e.conditions(p, now)
	e.lookAgain(&c, now)
}

// leave removes a waiting call. If the call was answered in the meantime, leave returns that answer and true.
func (e *entry) leave(w *account.Waiter) (account.Verdict, bool) {
	e.lock()
	defer e.unlock()
	if !w.Leave() {
		return <-w.Out, true
	}
	return account.Verdict{}, false
}

// tryEvict marks the entry dead, unless it is locked, owes units, holds units that Redis takes back, or waits for Redis. It
// reports whether it did.
func (e *entry) tryEvict(now int64) bool {
	if !e.mu.TryLock() {
		return false
	}
	alone := e.of.alone(e.tag())
	if (!alone || !e.share(e.plan.Load()).Counts()) && e.dieEmpty() {
		e.mu.Unlock()
		return true
	}
	e.wake()
	defer e.unlock()
	e.begin(now)
	if alone && e.account.FallbackOwed() > 0 {
		e.of.count.Forgiven.Add(e.account.Forgive(e.share(e.plan.Load()), now))
	}
	if e.waiters.Len() > 0 || !e.account.Forgettable(alone) {
		e.account.Return()
		return false
	}
	if alone { // the key would begin with a new share otherwise
		c := e.conditions(e.plan.Load(), now)
		e.account.StartFallback(&c, now)
	}
	e.of.count.Book(e.account.Forget())
	e.die()
	return true
}

// dieEmpty is die for an entry that is compact, owes nothing and holds nothing. It reports whether the entry is one. It does not
// expand the entry. Call it under e.mu.
func (e *entry) dieEmpty() bool {
	if e.whole != nil || !e.compact.Empty() {
		return false
	}
	e.of.count.Drained(account.DenyBudget, e.compact.Forget(account.UnitsOf(e.word.Swap(0))))
	e.die()
	return true
}

// owesNothing reports whether the entry is compact and owes nothing. A compact lease is one that Redis does not take back, and a
// budget of credit exists only beside owed units. So Shutdown has nothing to do for such an entry, and need not expand it. Call it
// under e.mu.
func (e *entry) owesNothing() bool { return e.whole == nil && e.compact.Owed() == 0 }

// die marks the entry dead, and removes it from the queue of its lane. Otherwise a key that is forgotten while Redis is away
// would stay in memory until Redis is back. If the entry is still queued later, freeze sends nothing. Call die under e.mu: an
// entry's lock is taken before a lane's, and no method that locks an entry is called under a lane's lock.
func (e *entry) die() {
	e.asks = evicted
	e.of.engine.Remove(e.tag(), e)
}

var _ ratesync.Item = (*entry)(nil)
