package hybrid

import (
	"math"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/clock"
)

// turnover measures how fast keys come. The fast path's use of a key is noted only when its budget ends. So the order of
// eviction misses the uses of a budget while it is valid. A budget that is valid while one step of keys comes makes the
// order wrong by that step. It counts from the first key: the first evictions need the order of the uses before them.
type turnover struct {
	step  int64  // a 64th of the keys
	void  func() // ends all budgets
	count atomic.Int64
	mark  atomic.Int64 // ns: end of the last step; 0: none began
	took  atomic.Int64 // ns: duration of the last step; 0: none has ended
}

// came notes that a key came. If a step was shorter than the longest validity of a budget, and was the first or less than
// half as long as the one before, came ends all budgets.
func (t *turnover) came(now int64) {
	switch n := t.count.Add(1); {
	case n == 1:
		t.mark.Store(max(1, now))
	case n%t.step == 0:
		took := max(1, now-t.mark.Swap(max(1, now)))
		if before := t.took.Swap(took); took < int64(clock.Span*tick) && (before == 0 || took < before/2) {
			t.void()
		}
	}
}

// notedBy returns the time, in ticks, by which a use of a key at now should be noted. It is now if a step is shorter than a
// tick, which is the least validity of a budget.
func (t *turnover) notedBy(now int64) int64 {
	took, mark := t.took.Load(), t.mark.Load()
	if took == 0 {
		return math.MaxInt64
	}
	took = max(took, now-mark) // the current step takes at least now-mark
	return now + took - took%int64(tick)
}
