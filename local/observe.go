package local

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Observe implements news.Teller. It charges the units by which the key has more.
func (g *giver) Observe(ctx context.Context, key string, o news.Observation) error {
	l := (*Limiter)(g)
	var at place
	unsupported := false
	_, err := l.call(&at, key, 1, false, func() hybridlimit.Result {
		limit := at.plan.limit
		if unsupported = limit.Algorithm == hybridlimit.AlgSlidingLog; unsupported {
			return hybridlimit.Result{}
		}
		e := at.use(l.request(ctx))
		seen := e.look(at.at, 0)
		if over := seen.room - max(0, at.plan.burst-o.Used(limit)); over > 0 {
			e.charge(at.at, over)
		}
		return hybridlimit.Result{}
	})
	if err == nil && unsupported {
		err = fmt.Errorf("local: Observe(%q): %w: a sliding log has no level", key, hybridlimit.ErrUnsupported)
	}
	return err
}
