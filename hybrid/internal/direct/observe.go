package direct

import (
	"context"
	"errors"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Observe notes the use that another party has counted. The next sync of the key tells it. If there is no memory for
// the key, it is one message, sent once.
func (a *Asker) Observe(ctx context.Context, key string, at keys.Place, o news.Observation) error {
	if !a.terms.Observes.Load() {
		a.terms.Observes.Store(true)
	}
	e, _, err := a.terms.LockAt(key, at)
	if err != nil {
		return err
	}
	now := a.terms.Clock.Now()
	use := account.Observed{Until: now + int64(o.Valid)}
	if redis := a.terms.Clocks.Redis(at.Tag, now); redis > 0 {
		use.By = redis + max(1, o.Valid.Microseconds())
	}
	told := true
	if e == nil {
		if use.Used = o.Used(at.Plan.Limit); use.Used == 0 {
			return nil
		}
		if _, _, ok := a.Within(ctx, at, algo.Op{Used: use.Used, UsedBy: use.By}, a.Patience()); !ok {
			return errors.Join(ctx.Err(), hybridlimit.ErrUnavailable)
		}
	} else {
		ev := e.Event()
		use.Used = o.Used(ev.Conditions.Limit) // a call may have brought another limit
		var next account.Sync
		next, told = e.Account.Observe(&ev.Conditions, use, ev.Now)
		ev.End(account.Verdict{Sync: next})
	}
	if told {
		a.terms.Count.Observed.Add(1)
	}
	return nil
}
