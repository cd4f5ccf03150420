package global

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// AllowLimit is AllowN under a limit that comes with the call, such as the quota in the caller's token. The key's usage
// stays: its level, in units, survives, capped at the burst of the limit of the next call. A bucket refills at the rate
// of the last limit until a call brings another one.
func (l *Limiter) AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error) {
	if err := l.check(key, n); err != nil {
		return hybridlimit.Result{}, err
	}
	t, err := newTerms(limit)
	if err == nil {
		err = t.replaces(l.terms.Load())
	}
	if err != nil {
		return hybridlimit.Result{}, err
	}
	t.began = time.Now()
	res, _, err := l.take(ctx, key, t, n, algo.Op{Asks: []int64{n}})
	return res, err
}

// AllowAtMost takes the available units of key, at most n. Result.Granted is their number. Allowed is false if there is
// none.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	t, err := l.of(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res, _, err := l.take(ctx, key, t, n, algo.Op{Asks: []int64{n}, Partial: true})
	return res, err
}

// Peek returns the answer that a call for one unit would get, and takes nothing.
func (l *Limiter) Peek(ctx context.Context, key string) (hybridlimit.Result, error) {
	t, err := l.of(key, 1)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if t.static() {
		return l.fixed(t, 0), nil
	}
	res := l.blank(t)
	ans, _, err := l.ask(ctx, key, t, algo.Op{})
	if err != nil {
		return l.unavailable(ctx, res, 0, err)
	}
	res = t.fill(res, ans)
	if res.Allowed = res.Remaining > 0; !res.Allowed {
		res.RetryAfter = micros(ans.Retry)
	}
	return res, nil
}

// Charge debits the actual cost of a call afterwards, unconditionally. n may exceed the burst, but the debt is at most
// one burst. With an error, the units may or may not have been debited.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	t, err := l.of(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res, err := l.adjust(ctx, key, t, algo.Op{Owed: n})
	if err == nil {
		res.Granted = n
	}
	return res, err
}

// SetLimit changes the limit of every key that has no limit of its own, at once, in this process. A key's usage stays:
// its level, in units, survives, capped at the new burst, and refills at the new rate from now on. A change is never a
// free refill. The algorithm cannot change: a limit of another one is ErrInvalid. Unlimited() and Blocked() are always
// accepted.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	l.setting.Lock()
	defer l.setting.Unlock()
	have := l.terms.Load()
	t, err := newTerms(limit)
	if err == nil {
		err = t.replaces(have)
	}
	if err != nil {
		return err
	}
	if t.static() {
		t.counts = have.counts
	}
	t.began = time.Now()
	l.terms.Store(t)
	return nil
}

// Inspect reads the state of key in Redis and takes nothing. The String of the KeyState is the answer that a call for
// one unit would get, with the reason. Inspect costs three messages.
func (l *Limiter) Inspect(ctx context.Context, key string) (hybridlimit.KeyState, error) {
	t, err := l.of(key, 1)
	if err != nil {
		return hybridlimit.KeyState{}, err
	}
	_, name := l.place(key)
	bounded, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	k, err := l.runner.Look(bounded, name, t.limit)
	if err != nil {
		_, err = l.unavailable(ctx, hybridlimit.Result{}, 0, err)
		return hybridlimit.KeyState{}, err
	}
	return k, nil
}

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
