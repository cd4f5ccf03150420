package local

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// mostPaused bounds the pauses of a shard.
const mostPaused = 4096

func init() { news.Register(func(l *Limiter) news.Teller { return (*giver)(l) }) }

// Pause implements news.Teller. The longer of two pauses counts.
func (g *giver) Pause(_ context.Context, key string, left time.Duration) error {
	l := (*Limiter)(g)
	full := false
	err := l.visit(key, func(s *shard) {
		now, _ := s.tick(l.now())
		if len(s.paused) >= mostPaused {
			maps.DeleteFunc(s.paused, func(_ string, until time.Duration) bool { return until <= now })
		}
		until, known := s.paused[key]
		if full = !known && len(s.paused) >= mostPaused; full {
			return
		}
		if s.paused == nil {
			s.paused = map[string]time.Duration{}
		}
		s.paused[strings.Clone(key)] = max(until, now+left) // the caller's may be a piece of a request
	})
	if full {
		return fmt.Errorf("local: key %q is not paused: %d keys of its shard are paused already", key, mostPaused)
	}
	return err
}

// pausedFor returns the time for which the key is paused still; not above 0: it is not. Call it after enter.
func (p *place) pausedFor() time.Duration {
	if p.paused == nil {
		return 0
	}
	until, ok := p.paused[p.key]
	if ok && until <= p.at {
		delete(p.paused, p.key)
	}
	return until - p.at
}

// pausedResult returns the answer for a key that is paused.
func (l *Limiter) pausedResult(at *place, left time.Duration) hybridlimit.Result {
	wait := after(left, at.behind)
	return hybridlimit.Result{
		Limit: at.plan.burst - at.floor, RetryAfter: wait, ResetAfter: wait, Source: hybridlimit.SourcePause, Policy: l.cfg.Name,
	}
}
