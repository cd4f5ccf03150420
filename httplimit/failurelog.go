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

// logEvery is the time between two log lines of one kind. Failures between
// them are only counted, because a failing limiter may fail for each request.
const logEvery = time.Second

// failureLog logs requests that the limiters did not decide normally. No line has
// a key in it.
type failureLog struct {
	to                          *slog.Logger
	failure, degradation, ended throttle
	keyless, bad, refusal       throttle
}

func newFailureLog(to *slog.Logger) *failureLog { return &failureLog{to: to} }

// failed logs a request that was not decided, or whose units were not returned. If
// the request itself has ended, the limiter has not failed (gaveUp). Each kind of
// line has its own throttle, so that a client that causes one kind cannot hide
// another.
func (c *failureLog) failed(ctx context.Context, err error, parts []part) {
	if end := ctx.Err(); end != nil && (errors.Is(err, end) || errors.Is(err, context.Cause(ctx))) {
		c.gaveUp(ctx, err, parts)
		return
	}
	switch {
	case badRequest(err):
		if more, ok := c.bad.pass(); ok {
			c.logger().WarnContext(ctx, "httplimit: a request has an invalid key or cost; it is answered 400", "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
		}
	case misconfigured(err):
		if more, ok := c.refusal.pass(); ok {
			c.logger().ErrorContext(ctx, "httplimit: a limiter has no valid limit for a key; the request is answered 503", "err", redacted(err, parts), "limits", policyNames(parts),
				"remedy", "let LimitFor return a valid limit for each key, and Limit.Of for each request, and Blocked() for an unknown one", "more", more)
		}
	default:
		if more, ok := c.failure.pass(); ok {
			c.logger().ErrorContext(ctx, "httplimit: a limiter failed", "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
		}
	}
}

// noKey logs a request without a key. With NoKeyPass the level is Debug, because
// the Config asks for such requests to be admitted.
func (c *failureLog) noKey(r *http.Request, err error, answer NoKey) {
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
		"remedy", "exempt the request in Config.Skip, return a key for it in Limit.Key (Pattern(nil) has one only inside a ServeMux), or set Config.NoKey",
		"more", more)
}

// maxShown bounds how many bytes of a text chosen by a client are logged.
const maxShown = 128

// shortened returns the loggable part of a text chosen by a client.
func shortened(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// gaveUp logs a request whose deadline came before its place in a queue, or before
// a limiter's answer. It logs nothing if the client has gone.
func (c *failureLog) gaveUp(ctx context.Context, err error, parts []part) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	if more, ok := c.ended.pass(); ok {
		c.logger().WarnContext(ctx, "httplimit: the deadline of a request is too early for the answer of its limits", "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
	}
}

// degraded logs a request that was decided by the fallback.
func (c *failureLog) degraded(ctx context.Context, err error, parts []part) {
	if more, ok := c.degradation.pass(); ok {
		c.logger().WarnContext(ctx, "httplimit: a limiter decides without Redis", "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
	}
}

// redacted returns an error's text without the keys, which errors quote. A key may
// be a person's address.
func redacted(err error, parts []part) string {
	text := err.Error()
	for i := range parts {
		text = strings.ReplaceAll(text, strconv.Quote(parts[i].key), "[key]")
	}
	return text
}

// policyNames returns the names of the limits that apply to a request.
func policyNames(parts []part) []string {
	names := make([]string, len(parts))
	for i := range parts {
		names[i] = parts[i].policyName()
	}
	return names
}

// logger looks up the default logger at each call, because a program may set it
// after New.
func (c *failureLog) logger() *slog.Logger {
	if c.to == nil {
		return slog.Default()
	}
	return c.to
}

// throttle admits one log line per logEvery and counts the others.
type throttle struct {
	next   atomic.Int64 // Unix ns
	missed atomic.Int64
}

// pass reports whether to log now, and how many lines were dropped since the last
// one.
func (t *throttle) pass() (missed int64, ok bool) {
	now, next := time.Now().UnixNano(), t.next.Load()
	if now < next || !t.next.CompareAndSwap(next, now+int64(logEvery)) {
		t.missed.Add(1)
		return 0, false
	}
	return t.missed.Swap(0), true
}
