package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// giver is a limiter that takes back what AllowAll took. It is a type of its own, so that Limiter has no method for it.
type giver Limiter

// ReturnTaken implements hybridlimit.Returner. at is the end of a fixed window, the time of a decision in a sliding
// one, or the time at which units leave a log; 0: the limit has none of them. ctx has the request id under which a log
// has the units.
func (g *giver) ReturnTaken(ctx context.Context, key string, n, at, _ int64, _ bool) error {
	l := (*Limiter)(g)
	if at == 0 {
		_, err := l.Refund(ctx, key, n)
		return err
	}
	if err := adapter.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	m := mark{at: time.Duration(at), until: time.Duration(at), by: l.request(ctx)}
	now, r := l.now(), receipt{mark: m, n: n}
	return l.visit(key, func(s *shard) {
		at, _ := s.tick(now)
		if e, _ := s.keys.Peek(key); e != nil {
			e.undo(at, r)
		}
	})
}

// taken names the units that the part has just taken.
func (p *jointKey) taken() hybridlimit.Taken {
	var at time.Duration
	switch m := p.entry.state.mark(p.plan, p.at); p.plan.limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgCalendarWindow, hybridlimit.AlgSlidingLog:
		at = m.until
	case hybridlimit.AlgSlidingWindow:
		at = max(1, m.at)
	}
	return hybridlimit.NewTaken((*giver)(p.l), int64(at), 0, false)
}
