package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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
	keyless, bad, refusal       throttle
}

func newComplaints(to *slog.Logger) *complaints { return &complaints{to: to} }

// failed tells of a request that could not be decided, or not undone. That the
// request's own time is up is no failure of the limiter. Lines of one kind do not
// take the place of another's: a client that causes the one could hide the other.
func (c *complaints) failed(ctx context.Context, err error, parts []part) {
	if end := ctx.Err(); end != nil && (errors.Is(err, end) || errors.Is(err, context.Cause(ctx))) {
		c.gaveUp(ctx, err, parts)
		return
	}
	switch {
	case badRequest(err):
		if more, ok := c.bad.pass(); ok {
			c.logger().WarnContext(ctx, "httplimit: a request has a key or a cost that no limiter takes", "err", redacted(err, parts), "more", more)
		}
	case misconfigured(err):
		if more, ok := c.refusal.pass(); ok {
			c.logger().ErrorContext(ctx, "httplimit: a limiter has no valid limit for a key", "err", redacted(err, parts),
				"remedy", "let LimitFor return a valid limit for each key: Blocked() for a key that it does not know", "more", more)
		}
	default:
		if more, ok := c.failure.pass(); ok {
			c.logger().ErrorContext(ctx, "httplimit: a limiter failed", "err", redacted(err, parts), "more", more)
		}
	}
}

// noKey tells of a request without a key. That it passes is the Config's word,
// and so a line for those who look for it only.
func (c *complaints) noKey(r *http.Request, err error, answer NoKey) {
	more, ok := c.keyless.pass()
	if !ok {
		return
	}
	level := slog.LevelWarn
	if answer == NoKeyPass {
		level = slog.LevelDebug
	}
	route := r.Pattern
	if route == "" {
		route = r.URL.Path
	}
	c.logger().Log(r.Context(), level, "httplimit: a request has no key", "err", err,
		"method", shortened(r.Method), "route", shortened(route), "answer", answer.String(),
		"remedy", "let Config.Skip name the request, let Limit.Key return a key for it (Pattern(nil) does so only behind a ServeMux), or set Config.NoKey",
		"more", more)
}

// maxShown is how much of a text that a client chooses is logged, in bytes.
const maxShown = 128

// shortened is a text of a client as it is logged.
func shortened(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
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
