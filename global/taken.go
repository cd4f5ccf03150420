package global

import (
	"context"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// giver is a limiter that takes back what AllowAll took. It is a type of its own, so that Limiter has no method for it.
type giver Limiter

// ReturnTaken implements hybridlimit.Returner. at is algo.Op.RefundAt. It is one message.
func (g *giver) ReturnTaken(ctx context.Context, key string, n, at int64, _ bool) error {
	l := (*Limiter)(g)
	t, err := l.of(key, n)
	if err != nil {
		return err
	}
	return l.giveBack(ctx, key, t, algo.Op{Refund: n, RefundAt: at})
}
