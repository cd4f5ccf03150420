package hybrid

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// History returns the admissions of key that a sliding log still counts, from
// all processes, the oldest first. Each has the exact time of Redis's clock, and
// the ID if hybridlimit.WithRequestID named the request. Units given back,
// denials, and admissions of the fallback while Redis did not answer are not
// included. Other algorithms keep no log: the error is ErrUnsupported. If Redis
// does not answer, it is ErrUnavailable.
//
// History is not a decision, and MaxWait does not bound it. It costs one message
// for every 250 entries. A message keeps Redis busy for up to a millisecond, and
// may take HubConfig.SyncTimeout. All entries are held in memory: at most as many
// as the limit has units, or twice that in debt. The result is not a snapshot:
// between two messages the oldest entries may leave, and as many that are newer
// than the first message may be at the end.
func (l *Limiter) History(ctx context.Context, key string) ([]hybridlimit.Admission, error) {
	if err := l.check(key, 1); err != nil {
		return nil, err
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return nil, err
	}
	if at.Plan.Limit.Algorithm != hybridlimit.AlgSlidingLog {
		return nil, fmt.Errorf("hybrid: History(%q): %w: %v keeps no log", key, hybridlimit.ErrUnsupported, at.Plan.Limit.Algorithm)
	}
	return wire.ReadHistory(func(after int64) (wire.Page, error) { return l.historyPage(ctx, at, after) })
}

// historyPage asks Redis for one page, unless the breaker is open.
func (l *Limiter) historyPage(ctx context.Context, at keys.Place, after int64) (wire.Page, error) {
	if l.control.Mute() {
		return wire.Page{}, fmt.Errorf("hybrid: History: %w: the switch is %v", hybridlimit.ErrUnavailable, SwitchLocalOnly)
	}
	call, ok := l.hub.breaker(at.Tag).Begin()
	if !ok {
		return wire.Page{}, fmt.Errorf("hybrid: History: %w: the breaker is open", hybridlimit.ErrUnavailable)
	}
	bounded, cancel := context.WithTimeout(ctx, l.hub.cfg.SyncTimeout)
	defer cancel()
	l.hub.clock.Begin()
	defer l.hub.clock.End()
	sent := time.Now()
	p, err := l.hub.runner.History(bounded, l.terms.InRedis(at), at.Plan.Limit, after)
	l.hub.exacts.Add(1)
	call.End(l.hub.engine.Without(time.Since(sent)), l.blame(ctx, err))
	switch {
	case err == nil:
		return p, nil
	case l.control.Closed.Load():
		return p, hybridlimit.ErrClosed
	case ctx.Err() != nil:
		return p, ctx.Err()
	}
	return p, fmt.Errorf("hybrid: History: %w: %w", hybridlimit.ErrUnavailable, err)
}
