package global

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

func init() { news.Register(func(l *Limiter) news.Teller { return (*giver)(l) }) }

// Pause implements news.Teller.
func (*giver) Pause(context.Context, string, time.Duration) error {
	return fmt.Errorf("global: %w: a pause needs heartbeats", hybridlimit.ErrUnsupported)
}

// Observe implements news.Teller. It is one message. Redis's clock is not known here, so that a message that Redis gets
// late counts too: it waits for Config.Timeout at most.
func (g *giver) Observe(ctx context.Context, key string, o news.Observation) error {
	l := (*Limiter)(g)
	t, err := l.of(key, 1)
	switch {
	case err != nil:
		return err
	case t.Kind == algo.KindLog && !t.static():
		return fmt.Errorf("global: Observe(%q): %w: %v has no level", key, hybridlimit.ErrUnsupported, t.limit.Algorithm)
	}
	used := o.Used(t.limit)
	if used == 0 {
		return nil
	}
	_, err = l.adjust(ctx, key, t, algo.Op{Used: used})
	return err
}
