package hybrid

import (
	"math"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/clock"
)

// turnover measures how fast keys come to a store that is full or nearly full. The fast path's use of a key is noted
// only when its budget ends. So the order of eviction misses the uses of a budget while it is valid. A budget that
// is valid while one step of the keys is replaced makes the order wrong by that step. A store that evicts nothing
// needs no order.
type turnover struct {
	step  int64  // a 64th of the keys
	void  func() // ends all budgets
	count atomic.Int64
	mark  atomic.Int64 // ns: end of the last step; 0: none began
	took  atomic.Int64 // ns: duration of the last step; 0: none has ended
}

const turnoverParts = 64

// came notes that a key came when the store was nearly full. Some steps pass from then until the first eviction. If a
// step was shorter than the longest validity of a budget, and was the first or less than half as long as the one before,
// came ends all budgets.
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

// notedBy returns the time by which the use of a key at now should be noted.
func (t *turnover) notedBy(now int64) int64 {
	took, mark := t.took.Load(), t.mark.Load()
	if took == 0 {
		return math.MaxInt64
	}
	return now + max(took, now-mark) // now-mark: the current step takes at least that long
}
