package hybridlimit

import (
	"context"
	"fmt"
	"time"
)

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

// maxRequestIDBytes is the length of the longest request id. A log keeps each id
// while its units count, so a long id costs memory: in Redis, up to three bytes
// per byte of the id, for each admitted call.
const maxRequestIDBytes = 128

type requestID struct{}

// WithRequestID returns a context that carries the id of a request. A sliding log
// stores the id with the admissions of calls that use this context. Nothing else
// reads it. An id may contain any bytes, and several calls may share one. An
// empty id is no id.
//
// An id above maxRequestIDBytes is an *InvalidError, and the returned context is
// ctx unchanged. So the code that takes ids from outside decides about long
// ones, and a limiter never fails because of an id.
func WithRequestID(ctx context.Context, id string) (context.Context, error) {
	if len(id) > maxRequestIDBytes {
		var bad Violations
		bad.Add("request id", id[:maxRequestIDBytes]+"…", fmt.Sprintf("must be at most %d bytes, not %d", maxRequestIDBytes, len(id)))
		return ctx, bad.Err("hybridlimit")
	}
	return context.WithValue(ctx, requestID{}, id), nil
}

// RequestID returns the id that WithRequestID stored in ctx. Empty: none. It is for
// implementations of limiters.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}
