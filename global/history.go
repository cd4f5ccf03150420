package global

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// History returns the admissions of key that a sliding log still counts, the oldest first. Each has its exact time by
// Redis's clock, and the request id set by hybridlimit.WithRequestID. Units that were given back and denied calls are
// not in it. Other algorithms keep no log; their error is ErrUnsupported.
//
// History sends one message for every 250 entries. Each message may take Config.Timeout, and keeps Redis busy for up to
// a millisecond. All entries are held in memory: at most as many as the limit has units, or twice as many in debt.
//
// History is no snapshot. Between two messages the oldest entries may expire, and as many entries newer than the first
// message may stand at the end.
func (l *Limiter) History(ctx context.Context, key string) ([]hybridlimit.Admission, error) {
	t, err := l.of(key, 1)
	if err != nil {
		return nil, err
	}
	if t.limit.Algorithm != hybridlimit.AlgSlidingLog {
		return nil, fmt.Errorf("global: History(%q): %w: %v keeps no log", key, hybridlimit.ErrUnsupported, t.limit.Algorithm)
	}
	_, name := l.place(key)
	return wire.ReadHistory(func(after int64) (wire.Page, error) {
		bounded, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
		defer cancel()
		p, err := l.runner.History(bounded, name, t.limit, after)
		if err != nil {
			_, err = l.unavailable(ctx, hybridlimit.Result{}, 0, err)
		}
		return p, err
	})
}
