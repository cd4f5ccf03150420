package fallback

import "fmt"

// Kind is the way in which a limiter decides without Redis: see hybrid.Fallback.
type Kind uint8

// The kinds. kinds has their words.
const (
	KindShare Kind = iota
	KindFull
	KindAllowAll
	KindDenyAll
)

// kinds has the name of each kind, and what a fleet of N processes admits by it while Redis does not answer.
var kinds = [...]struct{ name, admits string }{
	KindShare:    {"share", "all processes together admit about the limit"},
	KindFull:     {"full", "N processes admit up to N times the limit"},
	KindAllowAll: {"allow_all", "all calls are admitted"},
	KindDenyAll:  {"deny_all", "only leased units are admitted"},
}

// NumKinds is the number of kinds. Every valid Kind is below it.
const NumKinds = Kind(len(kinds))

// Valid reports whether k is a kind.
func (k Kind) Valid() bool { return k < NumKinds }

// String returns "share", "full", "allow_all" or "deny_all".
func (k Kind) String() string {
	if k.Valid() {
		return kinds[k].name
	}
	return fmt.Sprintf("Fallback(%d)", uint8(k))
}

// Admits returns what a fleet of N processes admits while Redis does not answer, for people. k is valid.
func (k Kind) Admits() string { return kinds[k].admits }

// Size is the size of a share. A share takes over each change of it.
type Size struct {
	Kind    Kind    // of the limiter
	Burst   int64   // units; the largest level, at least 1
	PerNs   float64 // units that come back each ns
	Period  int64   // ns, of a window or a log; 0: the share is a bucket
	Sliding bool    // the units of a window fade during the next one
	Saved   bool    // the share of a window is below one unit: a bucket saves it up
	Ends    int64   // ns; the end of the current window; 0: not known
	Floor   int64   // units that the class of the call leaves to others
}

// Counts reports whether the share decides, so that it can become empty.
func (s Size) Counts() bool {
	return (s.Kind == KindShare || s.Kind == KindFull) && s.PerNs > 0
}

// counters reports whether the share is a pair of counters.
func (s *Size) counters() bool { return s.Period > 0 && !s.Saved }

// like reports whether two sizes are those of one limit, for the same fleet.
func (s *Size) like(o *Size) bool {
	return s.Burst == o.Burst && s.PerNs == o.PerNs && s.Period == o.Period && s.Sliding == o.Sliding && s.Saved == o.Saved
}

// Share is the share of one key. All methods take the present size and the time in ns.
type Share interface {
	// Left returns the units left; it changes nothing.
	Left(s Size, now int64) float64
	// Take takes n units if it leaves s.Floor. It reports whether it did.
	Take(s Size, n, now int64) bool
	// Put returns units that were taken at this instant.
	Put(s Size, n, now int64)
	// Wait returns the ns until Take of n units may succeed; negative: never.
	Wait(s Size, n, now int64) int64
	// Lower lowers the share to a level, if it has more.
	Lower(s Size, level float64, now int64)
	// Debit takes n units that were used without asking: what is left, and a bucket goes into debt, of one burst at most.
	Debit(s Size, n, now int64)
}
