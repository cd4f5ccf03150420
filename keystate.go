package hybridlimit

import (
	"fmt"
	"time"
)

// KeyState is what Redis has of a key at the moment at which it is read.
// Nothing is changed by reading it. Durations in JSON are nanoseconds.
type KeyState struct {
	// Limit is the one that the figures are counted by: Redis keeps none.
	Limit Limit `json:"limit"`
	// Found says whether there is a state. Without one nothing is used.
	Found bool `json:"found"`
	// Left is the units that a call could take now.
	Left int64 `json:"left"`
	// Debt is the units beyond the limit, rounded up. 0: none.
	Debt int64 `json:"debt"`
	// RetryAfter is how long until one unit can be had. 0: now.
	RetryAfter time.Duration `json:"retry_after_ns"`
	// ResetAfter is how long until nothing is used any more.
	ResetAfter time.Duration `json:"reset_after_ns"`
	// Debited is the units debited since Born, or since the last Reset. A log
	// does not count them.
	Debited int64 `json:"debited"`
	// Leased is the units that processes hold by the ledger; others may be
	// leased besides, which it need not know.
	Leased int64 `json:"leased"`
	// Born is when the state began, by Redis's clock; a log does not say. The
	// zero Time: not known.
	Born time.Time `json:"born,omitzero"`
	// TTL is after how long Redis forgets it unless it is used.
	TTL time.Duration `json:"ttl_ns"`
}

// noun names the state: "bucket", "queue", "window" or "log".
func (k KeyState) noun() string {
	switch k.Limit.Algorithm {
	case AlgLeakyQueue:
		return "queue"
	case AlgFixedWindow, AlgSlidingWindow:
		return "window"
	case AlgSlidingLog:
		return "log"
	}
	return "bucket"
}

// String is one sentence for people: "allowed because the bucket has 12 of 100
// units left".
func (k KeyState) String() string {
	noun, most := k.noun(), k.Limit.BurstSize()
	if k.Limit.Algorithm == AlgUnlimited || k.Limit.Algorithm == AlgBlocked {
		return fmt.Sprintf("Redis is not asked because the limit is %v", k.Limit)
	}
	switch {
	case !k.Found:
		return fmt.Sprintf("allowed because Redis has no %s of the key: it was never used, or is full again", noun)
	case k.RetryAfter == 0:
		return fmt.Sprintf("allowed because the %s has %d of %d units left", noun, k.Left, most)
	case k.Debt > 0:
		return fmt.Sprintf("denied for %v because the %s is %s beyond the limit", k.RetryAfter, noun, unitsText(k.Debt))
	}
	return fmt.Sprintf("denied for %v because none of the %d units of the %s is left", k.RetryAfter, most, noun)
}

func unitsText(n int64) string {
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}
