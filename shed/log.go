package shed

import (
	"context"
	"log/slog"
	"time"
)

// calm is the time without a shed call after which a class is reported as served again. It bounds the log to two lines
// per class in that time.
const calm = 5 * time.Second

// shedding is the state of one class in the log.
type shedding struct {
	on    bool
	seen  int64     // shed calls at the last tick
	first int64     // shed calls before this time of shedding
	since time.Time // its begin
	last  time.Time // the last tick with a shed call
}

// report writes a line for each class that begins to be shed, or is served again. It is called once per tick, by one
// goroutine.
func (s *Shedder) report() {
	now := time.Now()
	for _, c := range s.classes[1:] {
		l, shed := &c.log, c.shed.Load()
		switch {
		case shed > l.seen:
			l.last = now
			if !l.on {
				l.on, l.since, l.first = true, now, l.seen
				s.write(slog.LevelWarn, "shed: the process is overloaded; calls of a class are shed", c,
					"limit", s.limiter.Limit(), "in_flight", s.running.Load(),
					"remedy", "find the slow dependency; the class is served again when calls find places")
			}
		case l.on && now.Sub(l.last) >= calm && int64(c.priority.MinLevel()) >= s.cut.below.Load():
			l.on = false
			s.write(slog.LevelInfo, "shed: calls of a class are served again", c,
				"shed", shed-l.first, "lasted", l.last.Sub(l.since).Round(tick))
		}
		l.seen = shed
	}
}

// write writes a line. The default logger is looked up at each line, because a program may set it later.
func (s *Shedder) write(level slog.Level, text string, c *class, args ...any) {
	to := s.cfg.Logger
	if to == nil {
		to = slog.Default()
	}
	to.Log(context.Background(), level, text, append([]any{"policy", s.cfg.Name, "class", c.name}, args...)...)
}
