package global

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/moves"
)

func init() {
	moves.DonorOf = func(l hybridlimit.Limiter) moves.Donor { return (*giver)(l.(*Limiter)) }
}

// TakeAbove implements moves.Donor. It is AllowAtMost with a floor.
func (g *giver) TakeAbove(ctx context.Context, key string, n, floor int64) (taken, left int64, err error) {
	l := (*Limiter)(g)
	t, err := l.of(key, n)
	if err != nil {
		return 0, 0, err
	}
	res, _, err := l.take(ctx, key, t, n, algo.Op{Asks: []int64{n}, Partial: true, Floor: floor})
	if err != nil || t.static() {
		return 0, 0, err
	}
	return res.Granted, max(0, res.Remaining-floor), nil
}
