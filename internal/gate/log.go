package gate

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/sometimes"
)

// logEvery is the time between two log lines of one kind. Failures between them are only counted, because a failing
// limiter may fail for each request.
const logEvery = time.Second

// Log logs requests that the limiters did not decide normally. No line has a key in it.
type Log struct {
	to    *slog.Logger
	names Names

	failure, degradation, ended, keyless, bad, refusal *sometimes.Line
}

// Names are the words of an adapter in its log lines.
type Names struct {
	Package string // "httplimit"
	Request string // "request"
	Bad     string // the answer to an invalid key or cost: "400"
	Refused string // the answer if a limiter rejects a limit: "503"
}

// NewLog returns a Log. A nil logger stands for slog.Default().
func NewLog(to *slog.Logger, names Names) *Log {
	line := func() *sometimes.Line { return sometimes.Every(logEvery) }
	return &Log{to: to, names: names, failure: line(), degradation: line(), ended: line(), keyless: line(), bad: line(), refusal: line()}
}

// Failed logs a request that was not decided, or whose units were not returned. If the request itself has ended, the
// limiter has not failed (GaveUp). Each kind of line has its own bound, so that a client that causes one kind cannot
// hide another.
func (c *Log) Failed(ctx context.Context, err error, parts []Part) {
	if end := ctx.Err(); end != nil && (errors.Is(err, end) || errors.Is(err, context.Cause(ctx))) {
		c.GaveUp(ctx, err, parts)
		return
	}
	switch {
	case BadRequest(err):
		if more, ok := c.bad.Due(); ok {
			c.logger().WarnContext(ctx, c.names.Package+": a "+c.names.Request+" has an invalid key or cost; it is answered "+c.names.Bad, "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
		}
	case misconfigured(err):
		if more, ok := c.refusal.Due(); ok {
			c.logger().ErrorContext(ctx, c.names.Package+": a limiter has no valid limit for a key; the "+c.names.Request+" is answered "+c.names.Refused, "err", redacted(err, parts), "limits", policyNames(parts),
				"remedy", "let LimitFor return a valid limit for each key, and Limit.Of for each "+c.names.Request+", and Blocked() for an unknown one", "more", more)
		}
	default:
		if more, ok := c.failure.Due(); ok {
			c.logger().ErrorContext(ctx, c.names.Package+": a limiter failed", "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
		}
	}
}

// NoKey logs a request without a key. args describe it.
func (c *Log) NoKey(ctx context.Context, level slog.Level, args ...any) {
	if more, ok := c.keyless.Due(); ok {
		c.logger().Log(ctx, level, c.names.Package+": a "+c.names.Request+" has no key", append(args, "more", more)...)
	}
}

// maxShown bounds how many bytes of a text chosen by a client are logged.
const maxShown = 128

// Shortened returns the loggable part of a text chosen by a client.
func Shortened(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// GaveUp logs a request whose deadline came before its place in a queue, or before a limiter's answer. It logs nothing
// if the client has gone.
func (c *Log) GaveUp(ctx context.Context, err error, parts []Part) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	if more, ok := c.ended.Due(); ok {
		c.logger().WarnContext(ctx, c.names.Package+": the deadline of a "+c.names.Request+" is too early for the answer of its limits", "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
	}
}

// degraded logs a request that was decided by the fallback.
func (c *Log) degraded(ctx context.Context, err error, parts []Part) {
	if more, ok := c.degradation.Due(); ok {
		c.logger().WarnContext(ctx, c.names.Package+": a limiter decides without Redis", "err", redacted(err, parts), "limits", policyNames(parts), "more", more)
	}
}

// redacted returns an error's text without the keys, which errors quote. A key may be a person's address.
func redacted(err error, parts []Part) string {
	text := err.Error()
	for i := range parts {
		text = strings.ReplaceAll(text, strconv.Quote(parts[i].Key), "[key]")
	}
	return text
}

// policyNames returns the names of the limits that apply to a request.
func policyNames(parts []Part) []string {
	names := make([]string, len(parts))
	for i := range parts {
		names[i] = parts[i].PolicyName()
	}
	return names
}

// logger looks up the default logger at each call, because a program may set it after the adapter is made.
func (c *Log) logger() *slog.Logger {
	if c.to == nil {
		return slog.Default()
	}
	return c.to
}
