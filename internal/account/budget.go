package account

import "github.com/hybridlimit/hybridlimit"

// Budget is the units of a key that the fast path may spend without the account. These units stay in the account's
// counts while the fast path has the budget: Begin takes the rest back and books the difference.
type Budget struct {
	Kind  BudgetKind // source of the units
	Units int64      // at most MaxUnits
}

// BudgetKind is the source of a budget's units.
type BudgetKind uint8

// The kinds of budgets. In a DenyBudget, Units counts the denied units, up from 0.
const (
	NoBudget BudgetKind = iota
	LeaseBudget
	CreditBudget
	DenyBudget

	BudgetKinds
)

// Sources maps the kind of a budget to the Source of its decisions.
var Sources = [BudgetKinds]hybridlimit.Source{
	LeaseBudget: hybridlimit.SourceLease, CreditBudget: hybridlimit.SourceCredit, DenyBudget: hybridlimit.SourceDenyCache,
}

// A budget is packed into one word: [epoch 34][kind 2][units 28]. The epoch is the last tick in which the budget is
// valid. Epochs wrap around. An epoch is over if it is behind the current one by less than half of the range: 1.4 years
// in ticks of 5 ms.
const (
	unitBits   = 28
	kindBits   = 2
	epochShift = unitBits + kindBits

	// EpochBits is the number of bits of the epoch in a word.
	EpochBits = 64 - epochShift
	// MaxUnits is the largest number of units in a budget.
	MaxUnits = 1<<unitBits - 1
	// Ticks is the longest validity of a budget, in ticks: 5.1 s.
	Ticks = 1024
)

// Pack returns the word of a budget that is valid until an epoch. 0 is no budget.
func (b Budget) Pack(until uint64) uint64 {
	if b.Kind == NoBudget {
		return 0
	}
	return until<<epochShift | uint64(b.Kind)<<unitBits | uint64(b.Units)
}

// Unpack returns the budget in a word.
func Unpack(word uint64) Budget { return Budget{KindOf(word), UnitsOf(word)} }

// Over reports whether a word is no longer valid in an epoch.
func Over(word, epoch uint64) bool { return int64(word-epoch<<epochShift) < 0 }

// UnitsOf returns the units in a word.
func UnitsOf(word uint64) int64 { return int64(word & MaxUnits) }

// KindOf returns the kind of the budget in a word.
func KindOf(word uint64) BudgetKind { return BudgetKind(word >> unitBits & (1<<kindBits - 1)) }

// Spendable returns the number of units that a budget admits.
func (b Budget) Spendable() int64 {
	if b.Kind == DenyBudget {
		return 0
	}
	return b.Units
}

// Begin is the first step of each event. It takes back the budget and drops leases that have ended. left is the number
// of units still in the budget; for a DenyBudget, it is the number of denied units. Begin returns the units that the
// fast path spent or denied, and the number of leased units that ended unspent.
func (a *Account) Begin(left, now int64) (spent Budget, expired int64) {
	spent = a.drain(left, now)
	expired = a.expire(now)
	return spent, expired + a.open(now)
}

// drain books the units that the fast path spent or denied.
func (a *Account) drain(left, now int64) Budget {
	b := a.budget
	a.budget = Budget{}
	units := b.Units - left
	switch b.Kind {
	case NoBudget:
		return Budget{}
	case LeaseBudget:
		a.use(units, now)
	case CreditBudget:
		a.owe(units, a.view.window)
	case DenyBudget:
		units = left
	}
	a.demand.spread(units, now)
	return Budget{b.Kind, units}
}

// Load is the last step of each event. It chooses the next budget of the fast path and its expiry until (ns). The fast
// path may spend the budget for two ticks after until, or after now if that is later: an epoch lasts one tick, and the
// next tick may be one tick late. The last ticks of a denial are left to the slow path, whose RetryAfter is exact.
// Every other change of the spendable units is an event of the key, which takes the budget back, or voids the budgets
// of all keys.
func (a *Account) Load(c *Conditions, now int64) (b Budget, until int64) {
	if c.Broken {
		return a.loadHeld()
	}
	until = now + Ticks*c.Tick
	if c.Window.Sliding {
		until = now + c.Interval // the estimate beside the budget does not include units that come back
	}
	a.demand.decay(now) // the calls on the budget are spread over the time from now on
	switch held := a.Held(); {
	case a.slotted():
	case held > 0:
		until = min(until, a.looksAgain(now))
		units := held
		if !a.frozen && a.leases[1].units == 0 {
			// The budget ends early, so that the slow path prefetches, or at least takes the last unit.
			if low := max(1, a.prefetchAt(c, now)); low < held {
				units = held - low
			} else if low == 1 && c.hasLeases() {
				units = 0
			}
		}
		a.budget = Budget{LeaseBudget, min(units, MaxUnits)}
	case now+2*c.Tick < a.DeniedUntil(c):
		a.budget, until = Budget{Kind: DenyBudget}, min(until, max(now, a.DeniedUntil(c)-3*c.Tick))
		if a.ahead.units > 0 {
			until = min(until, a.ahead.begin)
		}
	case a.pending > 0 && a.outlasts(now, 2*c.Tick):
		// A unit is pending, so a sync is queued. It will carry the units that are spent from now on. The unit that
		// makes this sync urgent is left to the slow path.
		units := a.CreditLeft(c, now)
		if more := a.flushAt(c, now) - a.pending; more > 0 {
			units = min(units, more-1)
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

// DenyUntil returns the time (ns) at which one unit can be had, for the RetryAfter of a DenyBudget's denials. The low
// bit is 0 if no unit exists before that time. It is 1 if units may exist, but this process must not ask yet.
func (a *Account) DenyUntil(c *Conditions) int64 {
	return max((a.thereAt(c, 1)+1)&^1, a.nextPollFor(c, 1)|1)
}
