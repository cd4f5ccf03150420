package hybrid

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// History is what a sliding log has admitted of key and still counts, in all
// processes, the oldest first: the exact times of Redis's clock, and the requests
// that hybridlimit.WithRequestID named. What was given back is not in it, nor
// who was denied, nor what the fallback admitted while Redis did not answer.
// Other algorithms keep no log and are ErrUnsupported; without Redis it is
// ErrUnavailable.
//
// It is no decision and does not keep to MaxWait. It costs a message for every
// 250 entries, each of which keeps Redis busy for up to a
// millisecond and has HubConfig.SyncTimeout, and memory for all: a log has as
// many entries as its limit has units, at most, or twice that in debt. It is no
// snapshot: between two messages the oldest entries may leave, and as many that
// are newer than the first message may be at the end.
func (l *Limiter) History(ctx context.Context, key string) ([]hybridlimit.Admission, error) {
	if err := l.check(key, 1); err != nil {
		return nil, err
	}
	at, err := l.place(key)
	if err != nil {
		return nil, err
	}
	if at.plan.Limit.Algorithm != hybridlimit.AlgSlidingLog {
		return nil, fmt.Errorf("hybrid: History(%q): %w: %v keeps no log", key, hybridlimit.ErrUnsupported, at.plan.Limit.Algorithm)
	}
	return wire.ReadHistory(func(after int64) (wire.Page, error) { return l.historyPage(ctx, at, after) })
}

// historyPage asks for a page, under the breaker.
func (l *Limiter) historyPage(ctx context.Context, at place, after int64) (wire.Page, error) {
	if l.mute() {
		return wire.Page{}, fmt.Errorf("hybrid: History: %w: the switch is %v", hybridlimit.ErrUnavailable, SwitchLocalOnly)
	}
	call, ok := l.hub.breaker(at.tag).Begin()
	if !ok {
		return wire.Page{}, fmt.Errorf("hybrid: History: %w: the breaker is open", hybridlimit.ErrUnavailable)
	}
	bounded, cancel := context.WithTimeout(ctx, l.hub.cfg.SyncTimeout)
	defer cancel()
	sent := time.Now()
	p, err := l.hub.runner.History(bounded, at.key, at.plan.Limit, after)
	l.hub.exacts.Add(1)
	call.End(l.hub.engine.Without(time.Since(sent)), l.blame(ctx, err))
	switch {
	case err == nil:
		return p, nil
	case l.closed.Load():
		return p, hybridlimit.ErrClosed
	case ctx.Err() != nil:
		return p, ctx.Err()
	}
	return p, fmt.Errorf("hybrid: History: %w: %w", hybridlimit.ErrUnavailable, err)
}
