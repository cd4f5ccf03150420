package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// complainEvery is how long failures are counted between two lines of one kind:
// a limiter that fails does so at each request.
const complainEvery = time.Second

// complaints logs what limiters could not do. Keys are in no line.
type complaints struct {
	to                          *slog.Logger
	failure, degradation, ended throttle
}

func newComplaints(to *slog.Logger) *complaints { return &complaints{to: to} }

// failed tells of a request that could not be decided, or not undone. That the
// request's own time is up is no failure of the limiter.
func (c *complaints) failed(ctx context.Context, err error, parts []part) {
	if end := ctx.Err(); end != nil && (errors.Is(err, end) || errors.Is(err, context.Cause(ctx))) {
		c.gaveUp(ctx, err, parts)
		return
	}
	if more, ok := c.failure.pass(); ok {
		c.logger().ErrorContext(ctx, "httplimit: a limiter failed", "err", redacted(err, parts), "more", more)
	}
}

// gaveUp tells of a request whose deadline is before its place in a queue, or
// before a limiter's answer. Nothing is wrong if its client is gone.
func (c *complaints) gaveUp(ctx context.Context, err error, parts []part) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	if more, ok := c.ended.pass(); ok {
		c.logger().WarnContext(ctx, "httplimit: a request has no time to wait", "err", redacted(err, parts), "more", more)
	}
}

// degraded tells of one that was decided by the fallback.
func (c *complaints) degraded(ctx context.Context, err error, parts []part) {
	if more, ok := c.degradation.pass(); ok {
		c.logger().WarnContext(ctx, "httplimit: a limiter decides without Redis", "err", redacted(err, parts), "more", more)
	}
}

// redacted is an error's text without the keys, which errors quote: a key may be
// somebody's address.
func redacted(err error, parts []part) string {
	text := err.Error()
	for i := range parts {
		text = strings.ReplaceAll(text, strconv.Quote(parts[i].key), "[key]")
	}
	return text
}

// logger asks for the default late: programs set it in main.
func (c *complaints) logger() *slog.Logger {
	if c.to == nil {
		return slog.Default()
	}
	return c.to
}

// throttle lets one through in each complainEvery, and counts the others.
type throttle struct {
	next   atomic.Int64 // Unix ns
	missed atomic.Int64
}

// pass says whether to log, and how many were not since the last time.
func (t *throttle) pass() (missed int64, ok bool) {
	now, next := time.Now().UnixNano(), t.next.Load()
	if now < next || !t.next.CompareAndSwap(next, now+int64(complainEvery)) {
		t.missed.Add(1)
		return 0, false
	}
	return t.missed.Swap(0), true
}
