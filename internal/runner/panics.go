package runner

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// WithLogger makes a Runner log panics of go-redis to l. Without it, or with nil,
// the logger is slog.Default().
func WithLogger(l *slog.Logger) Option { return func(r *Runner) { r.panics.log = l } }

// logEvery is the shortest time between two log lines about panics.
const logEvery = time.Second

// panics turns panics into errors.
type panics struct {
	log *slog.Logger // nil: slog.Default()

	mu      sync.Mutex // guards last and skipped; not held while logging
	last    time.Time  // time of the last log line
	skipped int        // panics since then without a log line
}

// catch runs f and turns a panic into an error. go-redis trusts the bytes that it
// reads, so a false server can make it panic. Such a server may fail a call, but
// must never end the process.
func (p *panics) catch(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: go-redis panicked: %v", wire.ErrReply, v)
			p.note(v, debug.Stack())
		}
	}()
	return f()
}

// note logs a panic, unless the last log line is more recent than logEvery.
func (p *panics) note(v any, stack []byte) {
	p.mu.Lock()
	now := time.Now()
	due := p.last.IsZero() || now.Sub(p.last) >= logEvery
	skipped := p.skipped
	if due {
		p.last, p.skipped = now, 0
	} else {
		p.skipped++
	}
	p.mu.Unlock()
	if !due {
		return
	}
	log := p.log
	if log == nil {
		log = slog.Default()
	}
	attrs := []slog.Attr{slog.Any("panic", fmt.Sprint(v)), slog.String("stack", string(stack))}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	log.LogAttrs(context.Background(), slog.LevelError, "hybridlimit: a call to Redis panicked; it counts as unanswered", attrs...)
}
