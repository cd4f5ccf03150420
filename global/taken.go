package global

import (
	"context"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// giver is a limiter that takes back what AllowAll took. It is a type of its own, so that Limiter has no method for it.
type giver Limiter

// ReturnTaken implements hybridlimit.Returner. at is algo.Op.RefundAt. It is one message, or none after a change of the
// period: only Redis knows in which of the new windows it counts the units.
func (g *giver) ReturnTaken(ctx context.Context, key string, n, at, period int64, _ bool) error {
	l := (*Limiter)(g)
	t, err := l.of(key, n)
	if err != nil || t.Window.Period != period {
		return err
	}
	return l.giveBack(ctx, key, t, algo.Op{Refund: n, RefundAt: at})
}
