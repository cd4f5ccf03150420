package hybrid

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// logEvery is the least time between two lines of one message. A Redis that
// flaps is one story, not a line per flap.
const logEvery = time.Second

// stateLog writes a line when the hub's state changes: never per decision.
type stateLog struct {
	log *slog.Logger

	mu      sync.Mutex // guards what follows; not held while logging
	last    map[string]time.Time
	skipped map[string]int
}

func newStateLog(log *slog.Logger) *stateLog {
	return &stateLog{log: log, last: map[string]time.Time{}, skipped: map[string]int{}}
}

// event warns, unless the same message was logged less than logEvery ago.
func (s *stateLog) event(msg string, attrs ...any) { s.write(slog.LevelWarn, msg, attrs...) }

func (s *stateLog) write(level slog.Level, msg string, attrs ...any) {
	now := time.Now()
	s.mu.Lock()
	if last, ok := s.last[msg]; ok && now.Sub(last) < logEvery {
		s.skipped[msg]++
		s.mu.Unlock()
		return
	}
	s.last[msg] = now
	skipped := s.skipped[msg]
	delete(s.skipped, msg)
	s.mu.Unlock()
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	s.log.Log(context.Background(), level, msg, attrs...)
}

const (
	msgBroken = "hybridlimit: Redis does not answer; deciding locally"
	msgMended = "hybridlimit: Redis answers again; back on the shared limit"
	msgAlone  = "hybridlimit: the fleet's size is unknown; this process takes the whole limit (set HubConfig.FleetSize)"
)

// breaker reports that the hub fell back or recovered. Half-open is neither.
func (s *stateLog) breaker(c breaker.Change, h *Hub) {
	switch c.To {
	case breaker.Open:
		if c.From != breaker.Closed {
			return
		}
		attrs := []any{slog.Any("cause", c.Cause)}
		alone := ""
		for _, l := range h.all() {
			attrs = append(attrs, slog.Group(l.cfg.Name,
				slog.String("fallback", l.cfg.Fallback.String()), slog.Int64("fleet", l.fleet.size())))
			if l.fleet.beats.Load() < 2 && l.fleet.hint == 0 {
				alone = l.cfg.Name
			}
		}
		s.event(msgBroken, attrs...)
		if alone != "" {
			s.event(msgAlone, slog.String("limiter", alone))
		}
	case breaker.Closed:
		s.write(slog.LevelInfo, msgMended)
	}
}
