package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// eventLog turns the library's log lines, a few per outage, into messages to
// the parent, which shows those of all processes together.
type eventLog struct {
	out *outbox

	mu    sync.Mutex
	start time.Time // zero before the load
}

func (e *eventLog) logger() *slog.Logger { return slog.New(e) }

func (e *eventLog) begin(start time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.start = start
}

// Enabled, Handle, WithAttrs and WithGroup make it a slog.Handler. What the
// lines have in common (the prefix) is left out.
func (e *eventLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (e *eventLog) Handle(_ context.Context, r slog.Record) error {
	e.mu.Lock()
	start := e.start
	e.mu.Unlock()
	ev := event{Text: strings.TrimPrefix(r.Message, "hybridlimit: ")}
	if !start.IsZero() {
		ev.At = r.Time.Sub(start)
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "cause" {
			ev.Cause = a.Value.String()
		}
		return true
	})
	e.out.send(message{Kind: kindEvent, Event: &ev})
	return nil
}

func (e *eventLog) WithAttrs([]slog.Attr) slog.Handler { return e }
func (e *eventLog) WithGroup(string) slog.Handler      { return e }

// quiet drops what go-redis logs about its connections: a line for each that
// fails while Redis is away.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
