package hybrid

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/moves"
)

func init() {
	moves.HomeOf = func(hub any) moves.Home {
		h := hub.(*Hub)
		return moves.Home{
			Client: h.client, Prefix: h.cfg.Prefix, Tags: h.cfg.Tags, HashKeys: h.cfg.HashKeys, Functions: h.cfg.Functions,
			Logger: h.cfg.Logger, Meters: h.cfg.MeterProvider,
		}
	}
	moves.ReceiverOf = func(l hybridlimit.Limiter) moves.Receiver { return (*giver)(l.(*Limiter)) }
}

// Give implements moves.Receiver. It is Refund, but the sync goes at once.
func (g *giver) Give(ctx context.Context, key string, n int64) (at int64, counts bool, err error) {
	l := (*Limiter)(g)
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return 0, false, err
	}
	if _, ok := l.terms.Uncounted(0); ok {
		return 0, false, nil
	}
	place, err := l.terms.Place(key)
	if err != nil || account.Static(place.Plan.Limit) {
		return 0, false, err
	}
	_, err = l.direct.RefundLater(ctx, key, place, n, account.Taken{}, account.SyncNow)
	return l.clock.Now(), true, err
}

// Landed implements moves.Receiver.
func (g *giver) Landed(key string, at int64) bool {
	e := g.terms.Store.Peek(key)
	if e == nil {
		return true
	}
	e.Lock()
	defer e.Unlock()
	return e.Account.ToldGiven(at)
}

// Left implements moves.Receiver.
func (g *giver) Left(key string) int64 { return g.terms.Left(key) }

// Fleet implements moves.Receiver.
func (g *giver) Fleet() int64 { return g.party.Size() }
