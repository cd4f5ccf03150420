package tell

import (
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Counts counts for one limiter. Stats and the metrics export it.
type Counts struct {
	Born       int64 // ns on the hub's clock; set once
	Words      [account.BudgetKinds]wordCount
	shown      [2][adapter.NumSources]atomic.Int64 // the largest counts that tally returned
	Allowed    [adapter.NumSources]atomic.Int64
	denied     [adapter.NumSources]atomic.Int64
	Admitted   atomic.Int64 // units
	Acked      atomic.Int64 // owed units that Redis acknowledged
	Debited    atomic.Int64 // units granted or leased by Redis
	Netted     atomic.Int64 // owed units paid from a grant
	Expired    atomic.Int64 // leased units that expired unspent
	Lost       atomic.Int64 // units granted too late or to callers that had gone, or returned too late
	Uncertain  atomic.Int64 // units asked for in messages that were sent once and had no answer
	Dropped    atomic.Int64 // owed units that Redis never learns of
	Forgiven   atomic.Int64 // units of the fallback that had refilled when Redis came back
	Overflow   atomic.Int64 // fallback decisions without memory to count them in
	Returned   atomic.Int64 // admitted units that callers gave back
	Refunded   atomic.Int64 // units that Redis has taken back
	Resynced   atomic.Int64 // keys synced again after a loss
	Observed   atomic.Int64 // observations that were news
	Restored   atomic.Int64 // keys whose use Config.Restore told
	Unrestored atomic.Int64 // questions to Config.Restore that failed
	Ops        atomic.Int64 // keys frozen for a sync, and direct calls
	BadLimits  atomic.Int64 // answers of LimitFor about keys in memory that were not valid
	Indebted   atomic.Int64 // answers that showed a debt
	Worst      atomic.Int64 // the largest debt in an answer, units
}

// Decided counts a decision for n units. The units of SourceStatic, SourceSwitch and SourcePause are not counted, because
// no limit counts them.
func (c *Counts) Decided(s hybridlimit.Source, allowed bool, n int64) {
	if !allowed {
		c.denied[s].Add(1)
		return
	}
	c.Allowed[s].Add(1)
	if s != hybridlimit.SourceStatic && s != hybridlimit.SourceSwitch && s != hybridlimit.SourcePause {
		c.Admitted.Add(n)
	}
}

// Debt notes an answer of Redis with a debt of so many units.
func (c *Counts) Debt(units int64) {
	c.Indebted.Add(1)
	for was := c.Worst.Load(); units > was && !c.Worst.CompareAndSwap(was, units); {
		was = c.Worst.Load()
	}
}

// wordCount counts the decisions of the fast path whose budgets were taken back. units counts all units, and more
// counts the units beyond the first of each call. So a call of one unit, the usual case, adds nothing to the cost of
// the fast path.
type wordCount struct{ units, More atomic.Int64 }

// Drained counts units that a budget of the fast path has decided since it was loaded.
func (c *Counts) Drained(kind account.BudgetKind, units int64) {
	if units != 0 {
		c.Words[kind].units.Add(units)
	}
}

// Book adds the changes of an event.
func (c *Counts) Book(b account.Books) {
	for _, each := range [...]struct {
		total *atomic.Int64
		n     int64
	}{
		{&c.Acked, b.Acked},
		{&c.Debited, b.Debited},
		{&c.Netted, b.Netted},
		{&c.Refunded, b.Refunded},
		{&c.Returned, b.Returned},
		{&c.Expired, b.Expired},
		{&c.Lost, b.Lost},
		{&c.Dropped, b.Dropped},
		{&c.Forgiven, b.Forgiven},
		{&c.Resynced, b.Resynced},
	} {
		if each.n != 0 {
			each.total.Add(each.n)
		}
	}
}

// Tally returns the decisions by source, and the units admitted. A call of several units counts once all of its units
// are known. Until then tally returns the last count, so that a count never falls.
func (c *Counts) Tally() (allowed, denied [adapter.NumSources]int64, admitted int64) {
	for src := range adapter.NumSources {
		allowed[src], denied[src] = c.Allowed[src].Load(), c.denied[src].Load()
	}
	admitted = c.Admitted.Load()
	for kind := range account.BudgetKinds {
		more := c.Words[kind].More.Load()
		units := c.Words[kind].units.Load()
		if kind == account.DenyBudget {
			denied[account.Sources[kind]] += units - more
		} else {
			allowed[account.Sources[kind]] += units - more
			admitted += units
		}
	}
	for src := range adapter.NumSources {
		allowed[src], denied[src] = rise(&c.shown[0][src], allowed[src]), rise(&c.shown[1][src], denied[src])
	}
	return allowed, denied, admitted
}

// Decisions returns the number of decisions by all sources.
func (c *Counts) Decisions() (total int64) {
	allowed, denied, _ := c.Tally()
	for src := range adapter.NumSources {
		total += allowed[src] + denied[src]
	}
	return total
}

// rise raises shown to n, and returns the larger of the two.
func rise(shown *atomic.Int64, n int64) int64 {
	for {
		was := shown.Load()
		if n <= was {
			return was
		}
		if shown.CompareAndSwap(was, n) {
			return n
		}
	}
}

// denials returns the number of counted denials, those from budgets separately. A call for several units that is under
// way may count in words once per unit, or not at all.
func (c *Counts) denials() (others, words int64) {
	for src := range c.denied {
		others += c.denied[src].Load()
	}
	words = c.Words[account.DenyBudget].units.Load()
	return others, words - c.Words[account.DenyBudget].More.Load()
}
