package runner

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// WithLogger makes a Runner log panics of go-redis to l. Without it, or with nil, the logger is slog.Default().
func WithLogger(l *slog.Logger) Option { return func(r *Runner) { r.panics.log = l } }

// logEvery is the shortest time between two log lines about panics.
const logEvery = time.Second

type panics struct {
	log *slog.Logger // nil: slog.Default()

	line *sometimes.Line
}

// catch runs f and turns a panic into an error. go-redis trusts the bytes that it reads, so a false server can make it
// panic. Such a server may fail a call, but must never end the process.
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
	skipped, ok := p.line.Due()
	if !ok {
		return
	}
	log := p.log
	if log == nil {
		log = slog.Default()
	}
	attrs := []slog.Attr{slog.Any("panic", fmt.Sprint(v)), slog.String("stack", string(stack))}
	if skipped > 0 {
		attrs = append(attrs, slog.Int64("skipped", skipped))
	}
	log.LogAttrs(context.Background(), slog.LevelError, "hybridlimit: a call to Redis panicked; it counts as unanswered", attrs...)
}
