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
