package global

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// AllowLimit is AllowN under a limit that comes with the call: the plan in a
// token, say. What the key has used stays used: its level, in units, survives,
// capped at the burst of whatever limit asks next. Until a call brings another
// limit a bucket refills by the last one.
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

// AllowAtMost takes as many units of key as there are, n at most, and says how
// many in Result.Granted. Allowed is false when there is none.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	t, err := l.of(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res, _, err := l.take(ctx, key, t, n, algo.Op{Asks: []int64{n}, Partial: true})
	return res, err
}

// Peek says what a call for one unit would be told, and takes nothing.
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

// Charge debits an actual cost after the fact, unconditionally, down to a
// whole burst of debt; n may exceed the burst. With an error it may or may not
// have been debited.
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

// SetLimit changes the limit of every key that has none of its own, for this
// process, at once. What a key has used stays used: its level, in units,
// survives, capped at the new burst, and refills at the new rate from now on. It
// is never a free refill. The algorithm stays.
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
