package hybridlimit

import (
	"context"
	"fmt"
	"time"
)

// KeyState is the state of a key in Redis at the time of the call. Reading it
// changes nothing. Durations in JSON are nanoseconds.
type KeyState struct {
	// Limit is the limit by which the units are counted. Redis stores no limit.
	Limit Limit `json:"limit"`
	// Found is true if Redis has a state of the key. Without one, no unit is used.
	Found bool `json:"found"`
	// Left is the number of units that a call could take now.
	Left int64 `json:"left"`
	// Debt is the number of units beyond the limit, rounded up. 0: none.
	Debt int64 `json:"debt"`
	// RetryAfter is the time until one unit can be taken. 0: now.
	RetryAfter time.Duration `json:"retry_after_ns"`
	// ResetAfter is the time until the key has the state of an unused key.
	ResetAfter time.Duration `json:"reset_after_ns"`
	// Debited is the number of units debited since Born, or since the last Reset. A log does not count them: 0.
	Debited int64 `json:"debited"`
	// Leased is the number of units that processes hold, as far as Redis's record of leased units (the ledger) knows.
	// More units may be leased: the ledger need not hold every lease.
	Leased int64 `json:"leased"`
	// Born is the time at which the state began, by Redis's clock. The zero Time: unknown, as for a log.
	Born time.Time `json:"born,omitzero"`
	// TTL is the time after which Redis forgets the state, unless the key is used.
	TTL time.Duration `json:"ttl_ns"`
}

// noun returns the name of the state: "bucket", "queue", "window" or "log".
func (k KeyState) noun() string {
	switch k.Limit.Algorithm {
	case AlgLeakyQueue:
		return "queue"
	case AlgFixedWindow, AlgSlidingWindow, AlgCalendarWindow:
		return "window"
	case AlgSlidingLog:
		return "log"
	}
	return "bucket"
}

// String returns one sentence for people: "allowed because the bucket has 12 of 100 units left".
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

// Admission is one entry of a sliding log: the admitted units, their time and
// their request. The History of a limiter is a list of them.
type Admission struct {
	// At is the time of the call. It is by Redis's clock, or in local by the
	// clock of the process. It is unique among the entries of one key in Redis.
	At time.Time
	// Units is the cost of the call, less the units given back.
	Units int64
	// RequestID is the call's request id, set by WithRequestID. Empty: none.
	RequestID string
}

// maxRequestIDBytes is the length of the longest request id. A log keeps each id while its units count, so a long id
// costs memory: in Redis, up to three bytes per byte of the id, for each admitted call.
const maxRequestIDBytes = 128

type requestID struct{}

// WithRequestID returns a context that carries the id of a request. A sliding log stores the id with the admissions of
// calls that use this context. Nothing else reads it. An id may contain any bytes, and several calls may share one. An
// empty id is no id.
//
// An id above maxRequestIDBytes is an *InvalidError, and the returned context is ctx unchanged. So the code that takes
// ids from outside decides about long ones, and a limiter never fails because of an id.
func WithRequestID(ctx context.Context, id string) (context.Context, error) {
	if len(id) > maxRequestIDBytes {
		var bad violations
		bad.add("request id", id[:maxRequestIDBytes]+"…", fmt.Sprintf("must be at most %d bytes, not %d", maxRequestIDBytes, len(id)))
		return ctx, bad.err("hybridlimit")
	}
	return context.WithValue(ctx, requestID{}, id), nil
}

// RequestID returns the id that WithRequestID stored in ctx. Empty: none. It is for implementations of limiters.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}
