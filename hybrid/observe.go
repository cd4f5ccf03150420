package hybrid

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Observe implements news.Teller. This process knows of the use at once. Redis is told with the next sync of the key.
func (g *giver) Observe(ctx context.Context, key string, o news.Observation) error {
	l := (*Limiter)(g)
	if err := l.control.Check(key, 1, l.maxKey); err != nil {
		return err
	}
	if _, ok := l.terms.Uncounted(0); ok {
		return nil
	}
	at, err := l.terms.Place(key)
	switch {
	case err != nil || account.Static(at.Plan.Limit):
		return err
	case at.Plan.Part.Of > 1:
		return fmt.Errorf("hybrid: Observe(%q): %w: the key is split, and no part knows the use of the whole key", key, hybridlimit.ErrUnsupported)
	case at.Plan.Kind == algo.KindLog:
		return fmt.Errorf("hybrid: Observe(%q): %w: %v has no level", key, hybridlimit.ErrUnsupported, at.Plan.Limit.Algorithm)
	}
	return l.direct.Observe(ctx, key, at, o)
}
