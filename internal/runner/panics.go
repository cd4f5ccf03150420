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

// WithLogger makes a Runner log to l what nobody but the log can be told: that
// go-redis panicked. Without it, and with nil, that is slog.Default().
func WithLogger(l *slog.Logger) Option { return func(r *Runner) { r.panics.log = l } }

// logEvery is the least time between two log lines of panics.
const logEvery = time.Second

// panics turns panics into errors.
type panics struct {
	log *slog.Logger // nil: slog.Default()

	mu      sync.Mutex // guards what follows; not held while logging
	last    time.Time  // of a line
	skipped int        // panics since then without one
}

// catch runs f. A panic of f, and so of go-redis, which trusts what it reads, is
// an error: whoever stands in Redis's place may fail a call, and never ends the
// process.
func (p *panics) catch(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: go-redis panicked: %v", wire.ErrReply, v)
			p.note(v, debug.Stack())
		}
	}()
	return f()
}

// note logs a panic, unless there was a line just now.
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
