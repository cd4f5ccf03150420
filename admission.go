package hybridlimit

import (
	"context"
	"fmt"
	"time"
)

// Admission is one entry of a sliding log: what it admitted, when, and for
// which request. The History of a limiter is a list of them.
type Admission struct {
	// At is when, on the clock that the limit counts by: Redis's, or in local
	// the process's. No two entries of one key in Redis have the same.
	At time.Time
	// Units is what the call cost, less what was given back of it.
	Units int64
	// RequestID is what WithRequestID said of the call; empty: nothing.
	RequestID string
}

// maxRequestIDBytes is the longest request id. A log keeps each as long as the
// units count, so that its length is memory: up to three bytes in Redis for
// each of them, for as many calls as the limit admits.
const maxRequestIDBytes = 128

type requestID struct{}

// WithRequestID names the request that calls with the returned context are
// made for. Sliding logs note it beside what they admit; nothing else reads it.
// Any bytes may stand in an id, and several calls may share one; an empty one
// is none.
//
// An id above 128 bytes is an *InvalidError, and then the context is
// ctx as it was. So the one place that takes ids from outside decides what
// becomes of a long one, and a limiter never fails for its sake.
func WithRequestID(ctx context.Context, id string) (context.Context, error) {
	if len(id) > maxRequestIDBytes {
		var bad Violations
		bad.Add("request id", id[:maxRequestIDBytes]+"…", fmt.Sprintf("must be at most %d bytes, not %d", maxRequestIDBytes, len(id)))
		return ctx, bad.Err("hybridlimit")
	}
	return context.WithValue(ctx, requestID{}, id), nil
}

// RequestID is what WithRequestID said; empty: nothing. It is for limiters.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}
