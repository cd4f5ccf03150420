package account

import "github.com/hybridlimit/hybridlimit"

// Budget is what the fast path may spend of a key without the account. While the fast path has it, the units in it are
// still the account's: Begin takes the rest back and books the difference.
type Budget struct {
	Kind  BudgetKind // where the units come from
	Units int64      // at most MaxUnits
}

// BudgetKind is where the units of a budget come from.
type BudgetKind uint8

// The kinds. Of a DenyBudget, Units counts the denied units, up from 0.
const (
	NoBudget BudgetKind = iota
	LeaseBudget
	CreditBudget
	DenyBudget

	BudgetKinds
)

// Sources is the Source of a decision by a budget of each kind.
var Sources = [BudgetKinds]hybridlimit.Source{
	LeaseBudget: hybridlimit.SourceLease, CreditBudget: hybridlimit.SourceCredit, DenyBudget: hybridlimit.SourceDenyCache,
}

// A budget is packed into one word: [epoch 34][kind 2][units 28]. The epoch is the last tick in which it is good. Epochs wrap
// around; one is over if it lies less than half of them behind, which is 1.4 years of ticks of 5 ms.
const (
	unitBits   = 28
	kindBits   = 2
	epochShift = unitBits + kindBits

	// EpochBits is how many bits of a word are its epoch.
	EpochBits = 64 - epochShift
	// MaxUnits is the most units that a budget has.
	MaxUnits = 1<<unitBits - 1
	// Ticks is for how many ticks a budget is good at most: 5.1 s.
	Ticks = 1024
)

// Pack is the word of a budget that is good until an epoch. 0 is no budget.
func (b Budget) Pack(until uint64) uint64 {
	if b.Kind == NoBudget {
		return 0
	}
	return until<<epochShift | uint64(b.Kind)<<unitBits | uint64(b.Units)
}

// Unpack is the budget in a word.
func Unpack(word uint64) Budget { return Budget{KindOf(word), UnitsOf(word)} }

// Over reports whether the epoch until which a word was good is over.
func Over(word, epoch uint64) bool { return int64(word-epoch<<epochShift) < 0 }

// UnitsOf is the units in a word.
func UnitsOf(word uint64) int64 { return int64(word & MaxUnits) }

// KindOf is the kind of a word.
func KindOf(word uint64) BudgetKind { return BudgetKind(word >> unitBits & (1<<kindBits - 1)) }

// Spendable is how many units a budget admits.
func (b Budget) Spendable() int64 {
	if b.Kind == DenyBudget {
		return 0
	}
	return b.Units
}

// Begin is the first step of each event. It takes back the budget, of which left units are still there (of a DenyBudget: left
// units were denied), and ends leases that are over. It returns what the fast path did, and how many leased units nobody
// spent.
func (a *Account) Begin(left, now int64) (spent Budget, expired int64) {
	spent = a.drain(left, now)
	return spent, a.expire(now)
}

// drain books what the fast path did with the budget.
func (a *Account) drain(left, now int64) Budget {
	b := a.budget
	a.budget = Budget{}
	units := b.Units - left
	switch b.Kind {
	case NoBudget:
		return Budget{}
	case LeaseBudget:
		a.spend(units)
	case CreditBudget:
		a.owe(units)
	case DenyBudget:
		units = left
	}
	a.demand.spread(units, now)
	return Budget{b.Kind, units}
}

// Load is the last step of each event. It chooses what the fast path may spend, and until when (ns). The fast path may spend
// it for two ticks after that time, or after now: an epoch lasts one tick, and the next may be late by one. The last ticks of
// a denial are left to the slow path, whose RetryAfter is exact. Anything else that changes what may be spent either is an
// event of the key, which takes the budget back, or voids the budgets of all keys.
func (a *Account) Load(c *Conditions, now int64) (b Budget, until int64) {
	if c.Broken {
		return a.loadHeld()
	}
	until = now + Ticks*c.Tick
	if c.Window.Sliding {
		until = now + c.Interval // the estimate beside the budget does not count what comes back
	}
	a.demand.decay(now) // calls of the budget are spread over the time from here
	switch held := a.Held(); {
	case a.slotted():
	case held > 0:
		until = min(until, a.looksAgain(now))
		units := held
		if !a.frozen && a.leases[1].units == 0 {
			// Run dry early, so that the slow path prefetches, or takes at least the last unit.
			if low := max(1, a.prefetchAt(c, now)); low < held {
				units = held - low
			} else if low == 1 && c.hasLeases() {
				units = 0
			}
		}
		a.budget = Budget{LeaseBudget, min(units, MaxUnits)}
	case now+c.Tick < a.DeniedUntil(c):
		a.budget, until = Budget{Kind: DenyBudget}, min(until, max(now, a.DeniedUntil(c)-3*c.Tick))
	case a.pending > 0 && a.outlasts(now, 2*c.Tick):
		// A unit is pending, so a sync is queued, and takes along what is spent from here on. Run dry where that sync
		// becomes urgent.
		units := a.CreditLeft(c, now)
		if more := a.flushAt(c, now) - a.pending; more > 0 {
			units = min(units, more)
		}
		a.budget = Budget{CreditBudget, min(units, MaxUnits)}
		if a.view.ends != 0 {
			until = min(until, a.view.ends-2*c.Tick)
		}
	}
	if a.budget.Kind != DenyBudget && a.budget.Units <= 0 {
		a.budget = Budget{}
	}
	return a.budget, until
}

// loadHeld is Load while Redis is away: leases only.
func (a *Account) loadHeld() (b Budget, until int64) {
	if held := a.Held(); held > 0 && !a.slotted() {
		a.budget = Budget{LeaseBudget, min(held, MaxUnits)}
	}
	return a.budget, a.LeaseEnds()
}

// DenyUntil is until when (ns) a DenyBudget denies one unit. Its low bit is 0 where no unit exists before then, and 1 where
// units may exist but this process must not ask yet.
func (a *Account) DenyUntil(c *Conditions) int64 {
	return max(a.ProvedUntil(c, 1)&^1, a.NextPoll(c)|1)
}
