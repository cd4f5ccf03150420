package notice

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
)

// lines are the log lines of a Limiter, at most one a minute of each kind. None has a key.
type lines struct {
	log     *slog.Logger
	limiter string

	panics, losses, skips, failures, windowless *sometimes.Line
}

const quiet = time.Minute

func (l *lines) open(log *slog.Logger, limiter string) {
	l.log, l.limiter = log, limiter
	for _, line := range []**sometimes.Line{&l.panics, &l.losses, &l.skips, &l.failures, &l.windowless} {
		*line = sometimes.Every(quiet)
	}
}

func (l *lines) write(line *sometimes.Line, level slog.Level, text string, attrs ...slog.Attr) {
	skipped, ok := line.Due()
	if !ok {
		return
	}
	attrs = append([]slog.Attr{slog.String("limiter", l.limiter)}, attrs...)
	if skipped > 0 {
		attrs = append(attrs, slog.Int64("skipped", skipped))
	}
	l.log.LogAttrs(context.Background(), level, text, attrs...)
}

func (l *lines) panicked(text string, v any) {
	l.write(l.panics, slog.LevelError, text,
		slog.Any("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
}

func (l *lines) lost() {
	l.write(l.losses, slog.LevelError, "notice: a crossing is not told, because too many waited for Config.On; make On faster, or close later")
}

func (l *lines) skipped() {
	l.write(l.skips, slog.LevelWarn, "notice: keys are not looked at after their last call, because too many wait for that; raise Config.MaxKeys, or make On faster")
}

func (l *lines) failed(err error) {
	l.write(l.failures, slog.LevelWarn, "notice: looks at keys had no answer, so crossings may be told late; see the state of Redis",
		slog.String("error", err.Error()))
}

func (l *lines) unwatched(limit hybridlimit.Limit) {
	l.write(l.windowless, slog.LevelWarn, "notice: the crossings of a key are not told, because its limit has no windows; return a limit with windows for it",
		slog.String("limit", limit.String()))
}
