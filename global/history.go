package global

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// History is what a sliding log has admitted of key and still counts, the
// oldest first: the exact times of Redis's clock, and the requests that
// hybridlimit.WithRequestID named. What was given back is not in it, nor who
// was denied. Other algorithms keep no log and are ErrUnsupported.
//
// It costs a message for every 250 entries, each of which
// keeps Redis busy for up to a millisecond and has Config.Timeout, and memory
// for all: a log has as many entries as its limit has units, at most, or twice
// that in debt. It is no snapshot: between two messages the oldest entries may
// leave, and as many that are newer than the first message may be at the end.
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
