package keys

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

// Tick is the time between two epochs of the clock.
const Tick = clock.Tick

// Entry is one key in memory. A lock guards its account. The word is a packed account.Budget: the fast path spends from
// it without the lock.
type Entry struct {
	// The fast path reads one cache line of the entry: see layout_test.go.
	Name  string         // the caller's key
	short [shortKey]byte // holds the bytes of name, if they fit
	Word  atomic.Uint64
	rest  atomic.Uint64                // a float64: see estimate
	Plan  atomic.Pointer[account.Plan] // changed under mu

	shut atomic.Int64 // account.DenyUntil
	Ends atomic.Int64 // ns: end of the window; 0: not known, or no window

	chain atomic.Pointer[Entry] // the next one in its chain of the table; changed under the lock of the shard

	Terms *Terms
	Link  ratesync.Node

	Mu      sync.Mutex       // guards the fields below; never held across I/O; use lock and unlock
	*whole                   // set while mu is held, and while the account does not fit compact
	Asks    refresh.Deadline // the next question to Config.LimitFor, whose note is a kind of standing limit; see dead
	compact account.Compact
}

// whole is the part of an entry that its lock guards.
type whole struct {
	Account account.Account
	Waiters account.Waiters
}

// shortKey is the longest key, in bytes, that is stored inside its entry. Comparing such a key touches no other memory.
const shortKey = 24

// NewEntry returns an entry with a copy of the key: the caller's string may be a piece of a request, or of a buffer
// that will be used again.
func NewEntry(t *Terms, key string) *Entry {
	e := &Entry{Terms: t}
	if len(key) > shortKey {
		e.Name = strings.Clone(key)
		return e
	}
	e.Name = unsafe.String(&e.short[0], copy(e.short[:], key)) // short is never written again
	return e
}

// is reports whether the entry is the key's.
func (e *Entry) is(key string) bool {
	if len(key) > shortKey {
		return e.Name == key
	}
	return len(e.Name) == len(key) && string(e.short[:len(key)]) == key
}

// Tag returns the hash partition of the key.
func (e *Entry) Tag() int { return int(e.Link.Tag) }

// wholes recycles the wholes of entries that do not need theirs. A key with a sync in flight, a waiting call or a
// booking needs several times the memory of a key between calls.
var wholes = sync.Pool{New: func() any { return new(whole) }}

// Lock locks the entry with its account.
func (e *Entry) Lock() {
	e.Mu.Lock()
	e.wake()
}

// Hold locks the entry without its account, so that no event takes back or loads the budget.
func (e *Entry) Hold() { e.Mu.Lock() }

// Release unlocks an entry that Hold has locked.
func (e *Entry) Release() { e.Mu.Unlock() }

// TryLock is Lock if nobody has locked the entry, and reports whether it was.
func (e *Entry) TryLock() bool {
	if !e.Mu.TryLock() {
		return false
	}
	e.wake()
	return true
}

func (e *Entry) wake() {
	if e.whole == nil {
		e.whole = wholes.Get().(*whole)
		e.compact.Expand(&e.Account)
	}
}

// Unlock unlocks an entry that Lock has locked.
func (e *Entry) Unlock() {
	e.settleDown()
	e.Mu.Unlock()
}

// settleDown replaces the whole by the compact form, if that loses nothing.
func (e *Entry) settleDown() {
	if e.Waiters.Len() > 0 || e.Account.OnItsWay() {
		return
	}
	compact, ok := e.Account.Compact()
	if !ok {
		return
	}
	e.compact = compact
	*e.whole = whole{}
	wholes.Put(e.whole)
	e.whole = nil
}

// Begin takes back the budget and ends leases that are over. Every event starts here.
func (e *Entry) Begin(now int64) {
	spent, expired := e.Account.Begin(account.UnitsOf(e.Word.Swap(0)), now)
	e.Terms.Count.Drained(spent.Kind, spent.Units)
	e.counted(spent.Units, spent.Kind == account.DenyBudget, now)
	if spent.Kind == account.DenyBudget && e.Terms.tooMany(e.Name, spent.Units, now) {
		e.Terms.punish(e.Name)
	}
	if expired > 0 {
		e.Terms.Count.Expired.Add(expired)
	}
}

// End loads a new budget into the word. The budget is valid from the given epoch, which was read before now.
func (e *Entry) End(c *account.Conditions, epoch uint64, now int64) {
	var b account.Budget
	var until int64
	asks, noted := e.asksAt(now), e.Terms.Store.turnover.notedBy(now)
	switch p := e.Plan.Load(); {
	case min(asks, noted) <= now: // only the slow path asks LimitFor, and notes a use
	case e.Terms.Control.Wordless() || e.Terms.Control.Outdated(p) || e.Terms.PausedFor(e.Name, now) > 0:
		// Checked after the epoch was read. Close, a switch, a limit and a pause first change the control, and then void
		// the budgets.
	case e.Terms.Control.Exactly(p): // Redis decides; units that the fallback left are settled, and never loaded
	default:
		b, until = e.Account.Load(c, now)
	}
	e.Estimate(e.Plan.Load(), e.Account.Remaining(c, now)-b.Spendable())
	e.Ends.Store(e.windowEnd(c, now))
	if b.Kind == account.DenyBudget && e.Terms.Penalties != nil {
		until = min(until, now+penaltyWord)
	}
	if b.Kind == account.DenyBudget {
		e.shut.Store(e.Account.DenyUntil(c))
	}
	e.Word.Store(b.Pack(clock.GoodUntil(epoch, now, min(until, noted, asks))))
}

// Conditions returns the conditions of an event of the entry. Call it under e.mu.
func (e *Entry) Conditions(p *account.Plan, now int64) (c account.Conditions) {
	e.setConditions(&c, p, now)
	return c
}

// setConditions is conditions for zero Conditions in place. A copy of Conditions takes time.
func (e *Entry) setConditions(c *account.Conditions, p *account.Plan, now int64) {
	e.Terms.setConditions(c, p, now)
	c.Fallback.Share = e
	if c.Window.Period > 0 {
		c.Window = e.Terms.WindowAt(e.Tag(), p, now)
		if at := e.Terms.Clocks.Redis(e.Tag(), now); at > 0 {
			c.First, c.Last = c.Window.Number(at), c.Window.Number(e.Terms.Clocks.Latest(e.Tag(), now))
		}
	}
	if c.Broken = e.Terms.Alone(e.Tag()); c.Broken {
		c.Fallback.Ends = e.windowEnd(c, now)
	}
}

// Estimate stores the estimate of the fleet's units without those of the budget; negative is debt. Units come back
// while the budget is valid, so the estimate is a line over time. It is stored as its value at time 0 of the rough
// clock. Its slope is PerNs, which is 0 for windows.
func (e *Entry) Estimate(p *account.Plan, units int64) {
	e.rest.Store(math.Float64bits(float64(units) - p.PerNs*float64(e.Terms.Clock.Rough())))
}

// units returns that estimate at the present time of the rough clock.
func (e *Entry) units(p *account.Plan, c *clock.Clock) float64 {
	return math.Float64frombits(e.rest.Load()) + p.PerNs*float64(c.Rough())
}

// floatSlack is the largest rounding error of an estimate in floats, in units.
const floatSlack = 1e-3

// UnitsLeft returns the estimate in whole units.
func (e *Entry) UnitsLeft(p *account.Plan) int64 {
	return int64(math.Floor(e.units(p, e.Terms.Clock) + floatSlack))
}

// windowEnd returns the end of the window by Redis's clock. While that clock is not known, it returns the earliest end
// that the view permits; 0: not known, or no window.
func (e *Entry) windowEnd(c *account.Conditions, now int64) int64 {
	ends := e.Account.WindowEnds()
	if c.Window.Calendar && ends > now && e.Account.ViewWindow() != c.Window.Win {
		return ends // Redis counts in another window than this process computes
	}
	if end := e.Terms.WindowEnd(e.Tag(), c.Window, now); end > 0 {
		return end
	}
	return ends
}

// Node implements ratesync.Item.
func (e *Entry) Node() *ratesync.Node { return &e.Link }

// Freeze implements ratesync.Item. It ignores the time of the engine, which is a little older than the epoch: the time
// of a budget must not be older than its epoch.
func (e *Entry) Freeze(time.Time) (wire.Op, bool) {
	if e.Terms.Control.Mute() {
		e.quiet()
		return wire.Op{}, false
	}
	op, age, ok := e.freeze()
	if ok {
		e.Terms.Count.Ops.Add(1)
		e.Terms.Hist.Stale(age)
	}
	return op, ok
}

// freeze also returns the ns since the view was received; negative: there is no view.
func (e *Entry) freeze() (op wire.Op, age int64, ok bool) {
	t := e.Terms
	e.Lock()
	defer e.Unlock()
	if e.Dead() {
		return wire.Op{}, -1, false
	}
	epoch, now := t.Clock.Stamp() // the sync may be due long after the last call
	if first := e.Waiters.Front(); first != nil {
		e.AdaptBack(first, now)
	}
	p := e.Plan.Load()
	c := e.Conditions(p, now)
	c.Lost = t.Lost(e.Tag())
	age = e.Account.ViewAge(now)
	e.Begin(now)
	said, books, ok := e.Account.Send(&c, p, &e.Waiters, now)
	span := e.Account.Span(&c, now)
	t.Count.Book(books)
	e.End(&c, epoch, now)
	if !ok {
		e.lookAgain(&c, now)
	}
	return wire.Op{Key: t.state(p, e.Tag(), e.Name), Limit: p.Limit, Span: span, Op: said}, age, ok
}

// Settle implements ratesync.Item. The view counts as received now, under the lock. This is never too early.
func (e *Entry) Settle(a ratesync.Answer) {
	t := e.Terms
	e.Lock()
	sent := e.Waiters.Sent()
	defer t.Found(sent.Bucket, a.Level) // runs last, when the lock is free
	ans := account.Answer{Answer: a.Answer, RedisNow: a.RedisNow, Sent: t.Clock.At(a.Sent)}
	if e.Dead() { // closed meanwhile
		t.Count.Book(e.Account.ReceiveClosed(ans))
		e.Unlock()
		return
	}
	epoch, now := t.Clock.Stamp()
	p := e.Plan.Load()
	c := e.Conditions(p, now)
	e.Begin(now)
	t.Clocks.Heard(e.Tag(), a.RedisNow, ans.Sent, now)
	ans.At = t.Clocks.At(e.Tag(), a.RedisNow, ans.Sent, now)
	answered, next, books := e.Account.Receive(&c, p, &e.Waiters, ans, now)
	t.Count.Book(books)
	e.End(&c, epoch, now)
	for _, w := range answered {
		e.Describe(&w.Verdict, &c, now)
		w.Out <- w.Verdict
	}
	e.lookAgain(&c, now)
	wanting := e.Account.Wanting(&c)
	e.Unlock()
	e.Sync(next)
	t.Sighted(e.Tag(), e.Name, sent, a.Answer, a.RedisNow)
	if wanting {
		t.Wants(e.Mark())
	}
}

// lookAgain queues the entry for the time at which leased units may have to go back to Redis.
func (e *Entry) lookAgain(c *account.Conditions, now int64) {
	if at := e.Account.LookAt(c, now); at > 0 && !e.Terms.Control.Mute() {
		if at > now && c.Window.Period == 0 { // with the syncs of other keys
			at += e.Terms.grid() - at%e.Terms.grid()
		}
		e.Terms.Engine.Enqueue(e.Tag(), e, e.Terms.Clock.Time(at))
	}
}

// Uncertain implements ratesync.Item.
func (e *Entry) Uncertain(op wire.Op) { e.Terms.Count.Uncertain.Add(op.Asked()) }

// Drop implements ratesync.Item.
func (e *Entry) Drop() {
	e.Lock()
	defer e.Unlock()
	e.Terms.Count.Book(e.Account.GiveUp(&e.Waiters))
}

// Sync queues the entry as an event asks for it. Call it without e.mu.
func (e *Entry) Sync(s account.Sync) {
	if s == account.SyncNot || e.Terms.Control.Mute() {
		return
	}
	switch s {
	case account.SyncNow:
		e.Terms.Engine.Enqueue(e.Tag(), e, time.Time{})
	case account.SyncLazily:
		e.Terms.Engine.Enqueue(e.Tag(), e, e.Terms.lazily(time.Now()))
	}
}

// adapt gives the entry another plan. The plan must be of a limit that counts. Call it under e.mu.
func (e *Entry) adapt(p *account.Plan, now int64) {
	old := e.Plan.Load()
	if old == p {
		return
	}
	e.Begin(now)
	e.Plan.Store(p)
	open := e.Account.Open()
	lost := e.Account.Adapt(old, p, now)
	e.Terms.Count.Lost.Add(lost)
	c := e.Conditions(p, now)
	e.lookAgain(&c, now)
	if e.Account.Open() > open && !e.Terms.Control.Mute() { // leased units go back
		e.Terms.Engine.Enqueue(e.Tag(), e, time.Time{})
	}
}

// Leave removes a waiting call. If the call was answered in the meantime, leave returns that answer and true.
func (e *Entry) Leave(w *account.Waiter) (account.Verdict, bool) {
	e.Lock()
	defer e.Unlock()
	if !w.Leave() {
		return <-w.Out, true
	}
	return account.Verdict{}, false
}

// tryEvict marks the entry dead, unless it is locked, owes units, holds units that Redis takes back, or waits for
// Redis. It reports whether it did.
func (e *Entry) tryEvict(now int64) bool {
	if !e.Mu.TryLock() {
		return false
	}
	alone := e.Terms.Alone(e.Tag())
	if (!alone || !e.Fallback(e.Plan.Load()).Counts()) && e.dieEmpty() {
		e.Mu.Unlock()
		return true
	}
	e.wake()
	defer e.Unlock()
	e.Begin(now)
	if alone && e.Account.FallbackOwed() > 0 {
		e.Terms.Count.Forgiven.Add(e.Account.Forgive(e.Fallback(e.Plan.Load()), now))
	}
	if e.Waiters.Len() > 0 || !e.Account.Forgettable(alone) {
		e.Account.Return()
		return false
	}
	if alone { // the key would begin with a new share otherwise
		c := e.Conditions(e.Plan.Load(), now)
		e.Account.StartFallback(&c, now)
	}
	e.Terms.Count.Book(e.Account.Forget())
	e.die()
	return true
}

// dieEmpty is die for an entry that is compact, owes nothing and holds nothing. It reports whether the entry is one. It
// does not expand the entry. Call it under e.mu.
func (e *Entry) dieEmpty() bool {
	if e.whole != nil || !e.compact.Empty() {
		return false
	}
	e.Terms.Count.Drained(account.DenyBudget, e.compact.Forget(account.UnitsOf(e.Word.Swap(0))))
	e.die()
	return true
}

// OwesNothing reports whether the entry is compact and owes nothing. A compact lease is one that Redis does not take
// back, and a budget of credit exists only beside owed units. So Shutdown has nothing to do for such an entry, and need
// not expand it. Call it under e.mu.
func (e *Entry) OwesNothing() bool { return e.whole == nil && e.compact.Owed() == 0 }

// die marks the entry dead, and removes it from the queue of its lane. Otherwise a key that is forgotten while Redis is
// away would stay in memory until Redis is back. If the entry is still queued later, freeze sends nothing. Call die
// under e.mu: an entry's lock is taken before a lane's, and no method that locks an entry is called under a lane's
// lock.
func (e *Entry) die() {
	e.Asks = Evicted
	e.Terms.Engine.Remove(e.Tag(), e)
}

var _ ratesync.Item = (*Entry)(nil)
