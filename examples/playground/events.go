package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of the log.
type event struct {
	Seq  int64  `json:"seq"`
	At   int64  `json:"at"`   // ms since the start
	Kind string `json:"kind"` // you, redis, fleet, warn
	Text string `json:"text"`
}

// The kinds of events: actions on the page, states of Redis, states of the fleet, and warnings of limiters.
const (
	kindYou   = "you"
	kindRedis = "redis"
	kindFleet = "fleet"
	kindWarn  = "warn"
)

const (
	maxEvents = 200
	// gather is the time in which equal lines of several processes are collected into one event.
	gather = 400 * time.Millisecond
)

// chronicle is the log. Limiters write to it from their own goroutines.
type chronicle struct {
	start time.Time

	mu      sync.Mutex
	seq     int64
	events  []event
	waiting []said
}

// said is a line of one process's limiter.
type said struct {
	process           int
	at                time.Time
	kind, text, cause string
}

func (c *chronicle) note(kind, format string, args ...any) event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.add(time.Now(), kind, fmt.Sprintf(format, args...))
}

// add is called with c.mu held.
func (c *chronicle) add(at time.Time, kind, text string) event {
	c.seq++
	e := event{Seq: c.seq, At: at.Sub(c.start).Milliseconds(), Kind: kind, Text: text}
	c.events = latest(append(c.events, e), maxEvents)
	return e
}

func (c *chronicle) all() []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

func (c *chronicle) hear(s said) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) < maxEvents {
		c.waiting = append(c.waiting, s)
	}
}

// settle makes events of lines that have waited long enough.
func (c *chronicle) settle(now time.Time) (made []event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 && now.Sub(c.waiting[0].at) >= gather {
		first := c.waiting[0]
		var who []int
		c.waiting = slices.DeleteFunc(c.waiting, func(s said) bool {
			if s.text != first.text {
				return false
			}
			who = append(who, s.process)
			return true
		})
		text := fmt.Sprintf("%s: %s", processes(who), first.text)
		if first.cause != "" {
			text += fmt.Sprintf(" (%s)", first.cause)
		}
		made = append(made, c.add(first.at, first.kind, text))
	}
	return made
}

// processes returns "Process 2", "Processes 1–4" or "Processes 1, 3".
func processes(who []int) string {
	slices.Sort(who)
	who = slices.Compact(who)
	if len(who) == 1 {
		return fmt.Sprintf("Process %d", who[0])
	}
	var parts []string
	for i := 0; i < len(who); {
		j := i
		for j+1 < len(who) && who[j+1] == who[j]+1 {
			j++
		}
		if j > i+1 {
			parts = append(parts, fmt.Sprintf("%d–%d", who[i], who[j]))
			i = j + 1
		} else {
			parts = append(parts, fmt.Sprint(who[i]))
			i++
		}
	}
	return "Processes " + strings.Join(parts, ", ")
}

// listener is the slog.Handler of one process's hub. Its few lines become events, with the words of the library.
type listener struct {
	to      *chronicle
	process int
	silent  func() bool // true while the process is paused: its lines are dropped
}

func (l *listener) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *listener) Handle(_ context.Context, r slog.Record) error {
	if l.silent() {
		return nil
	}
	s := said{process: l.process, at: r.Time, kind: kindFleet, text: strings.TrimPrefix(r.Message, "hybridlimit: ")}
	if r.Level >= slog.LevelWarn {
		s.kind = kindWarn
	}
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "cause" || a.Key == "error":
			s.cause = a.Value.String()
		case a.Value.Kind() == slog.KindGroup:
			if text := fallback(a.Value.Group()); !strings.HasSuffix(s.text, text) { // the limiters of a process have equal fallbacks
				s.text += text
			}
		}
		return true
	})
	l.to.hear(s)
	return nil
}

// fallback returns the text about the fallback in the group of a limiter.
func fallback(attrs []slog.Attr) string {
	of := map[string]string{}
	for _, a := range attrs {
		of[a.Key] = a.Value.String()
	}
	if n := of["fleet"]; of["fallback"] == "share" && n != "" && n != "0" {
		return "; fallback share 1/" + n
	}
	return ""
}

// WithAttrs is part of slog.Handler. The attributes common to all lines are left out.
func (l *listener) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *listener) WithGroup(string) slog.Handler { return l }
