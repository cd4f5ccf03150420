package hybrid

import (
	"math"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/clock"
)

// turnover is how fast keys come to a store that is full, or nearly. What the
// common path uses is noted only when its word ends; a word that is good while a
// 64th of the keys is replaced has the least recently used know that much less.
// Where nobody has to go, nobody asks who was used last.
type turnover struct {
	step  int64  // a 64th of the keys
	void  func() // has all words end
	count atomic.Int64
	mark  atomic.Int64 // ns when the last step was over; 0: none began
	took  atomic.Int64 // ns that it took; 0: none is over
}

const turnoverParts = 64

// came notes that a key came for which there was hardly room. There are some
// steps from there until the first has to go. Words that are good for longer than
// recency may lag by now are ended.
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

// notedBy is when a key that is used now should be noted as used again.
func (t *turnover) notedBy(now int64) int64 {
	took, mark := t.took.Load(), t.mark.Load()
	if took == 0 {
		return math.MaxInt64
	}
	return now + max(took, now-mark) // a step that is not over takes that, at least
}
