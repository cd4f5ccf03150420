package hybrid

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// giver is a limiter that takes back what AllowAll took. It is a type of its own, so that Limiter has no method for it.
type giver Limiter

// ReturnTaken implements hybridlimit.Returner. at is the number of a window, or the time of an entry of a log in µs of
// Redis's time; 0: the limit has neither. The units go with the next sync of the key. If Redis decides each call, they
// are one message. After a change of the period nothing returns: only Redis knows in which of the new windows it counts
// the units.
func (g *giver) ReturnTaken(ctx context.Context, key string, n, at, period int64, direct bool) error {
	l := (*Limiter)(g)
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return err
	}
	if _, ok := l.terms.Uncounted(0); ok {
		return nil
	}
	place, err := l.terms.Place(key)
	if err != nil || account.Static(place.Plan.Limit) || place.Plan.Window.Period != period {
		return err
	}
	_, err = l.direct.RefundLater(ctx, key, place, n, account.Taken{At: at, Direct: direct}, account.SyncLazily)
	return err
}

// taken names units of a key that were taken in the present window. Units in hand and the credit of a view do not outlive
// their window.
func (g *giver) taken(p *account.Plan, tag int) hybridlimit.Taken {
	if p.Window.Period == 0 {
		return hybridlimit.NewTaken(g, 0, 0, false)
	}
	now := max(0, g.terms.Clocks.Redis(tag, g.clock.Now()))
	return hybridlimit.NewTaken(g, p.Window.Number(now), p.Window.Period, false)
}

// taken names the units of an admitted part.
func (p *part) taken() hybridlimit.Taken {
	switch g := (*giver)(p.Limiter); {
	case p.v.Action != account.Admit || p.v.Source == hybridlimit.SourceFallback: // of the share of this process alone
		return hybridlimit.Taken{}
	case p.exactly && p.paid && p.back.Refund > 0:
		return hybridlimit.NewTaken(g, p.back.RefundAt, p.plan.Window.Period, true)
	case p.v.Window > 0: // on credit
		return hybridlimit.NewTaken(g, p.v.Window, p.plan.Window.Period, false)
	case p.window > 0:
		return hybridlimit.NewTaken(g, p.window, p.plan.Window.Period, false)
	default:
		return g.taken(p.plan, p.at.Tag)
	}
}
