package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// AllowLimit is AllowN under a limit that comes with the call, for example a quota in the caller's token. The key
// adopts this limit until a call brings another. AllowN and the other methods without a limit restore the key's own
// limit. Used units stay used, as with SetLimit. A limit that differs from the key's last one costs the slow path and
// a sync. Config.LimitFor is cheaper if the key alone decides the limit.
func (l *Limiter) AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (res hybridlimit.Result, err error) {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return hybridlimit.Result{}, err
	}
	if e := l.terms.Store.Get(key); e != nil {
		if r := e.Plan.Load(); r.Undivided().Limit == limit && r.From == account.FromCall && l.terms.Common(e, r, n, &res) {
			return res, nil
		}
	}
	if err := errors.Join(limit.Validate(), l.control.Fits(limit)); err != nil {
		return hybridlimit.Result{}, err
	}
	given := l.control.NewPlan(limit)
	given.Began = max(1, l.hub.clock.Now())
	given.From = account.FromCall
	return l.slow(ctx, key, n, given)
}

// AllowAtMost takes between one and n units of key: as many as there are, by the estimate of Remaining. Result.Granted
// is the number. It takes units in hand first, and asks Redis once for the others. It takes less if other processes
// use the key at the same moment. From a queue it takes only the units in hand, if there are any. If Redis makes the
// decision (ModeExact, logs, and queues without a block of slots), AllowAtMost takes all available units, up to n,
// with one message. Allowed is false when not even one unit can be had. Under Config.Shadow it grants n, with Shadowed
// set if n is more than was taken.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.terms.DecidedAbove(key, n); ok {
		l.terms.Denied(key, nil, n, &res)
		return res, nil
	}
	if res, ok, err := l.uncountedKey(key, n); ok || err != nil {
		return l.answered(key, res, n), err
	}
	res, err := l.atMost(ctx, key, n)
	if err == nil && res.Allowed && res.Granted < n && res.Source == hybridlimit.SourceFallback && !res.Shadowed {
		res = l.theRestAlone(ctx, key, n, res)
	}
	if l.control.Shadow.Load() && res.Allowed && res.Granted < n {
		res.Granted, res.Shadowed = n, true
	}
	return res, err
}

func (l *Limiter) atMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if l.control.Exactly(l.control.Plan()) {
		return l.direct.UpTo(ctx, key, 1, n, nil)
	}
	took, v := l.takeAtMost(key, n)
	if took > 0 {
		return l.theRest(ctx, key, n, l.more(key, took, v)), nil
	}
	if v.Action == account.Ask { // a queue for which this process owes nothing
		return l.direct.UpTo(ctx, key, 1, n, nil)
	}
	res, err := l.AllowN(ctx, key, 1)
	if err != nil || !res.Allowed || res.Shadowed || n == 1 {
		return res, err
	}
	if took, v = l.takeAtMost(key, n-1); took > 0 {
		l.terms.Count.Admitted.Add(took)
		res.Delay = max(res.Delay, time.Duration(v.Delay)-slotTime(l.control.Plan())) // all are served together
	}
	res.Granted += took
	res.Remaining = max(0, res.Remaining-took)
	return l.theRest(ctx, key, n, res), nil
}

// theRest adds the units that remain after an admission of an AllowAtMost for n units. It asks for all of them with one
// call, which is no decision of its own. If that call is denied, or its context ends, the units taken before are the
// answer. The units of a queue are served together, so nothing is added to those.
func (l *Limiter) theRest(ctx context.Context, key string, n int64, res hybridlimit.Result) hybridlimit.Result {
	rest := min(n-res.Granted, res.Remaining)
	if rest < 1 || l.control.Shadow.Load() {
		return res
	}
	e, r, _, err := l.terms.LockBy(key, nil, nil)
	if e == nil || err != nil {
		return res
	}
	if account.Static(r.Limit) || r.Bucket.Queue || rest > r.Most {
		e.Unlock()
		return res
	}
	v, err := l.terms.Decide(ctx, e, r, rest)
	if err != nil {
		return res
	}
	if v.Action == account.Admit {
		l.terms.Count.Admitted.Add(rest)
		res.Granted += rest
	}
	res.Remaining, res.ResetAfter = keys.Remaining(v), l.terms.ResetAfter(r, v.Left, v.Ends)
	return res
}

// theRestAlone is theRest without Redis: the share of the key knows what is left.
func (l *Limiter) theRestAlone(ctx context.Context, key string, n int64, res hybridlimit.Result) hybridlimit.Result {
	at, err := l.terms.Place(key)
	if err != nil || at.Plan.Bucket.Queue {
		return res
	}
	rest := min(n-res.Granted, l.direct.PeekAlone(key, at).Remaining)
	if rest < 1 {
		return res
	}
	if more, err := l.AllowN(ctx, key, rest); err == nil && more.Allowed && !more.Shadowed {
		res.Granted, res.Remaining, res.ResetAfter = res.Granted+rest, more.Remaining, more.ResetAfter
	}
	return res
}

// more returns the answer of an AllowAtMost that took units at once.
func (l *Limiter) more(key string, took int64, v account.Verdict) hybridlimit.Result {
	res := hybridlimit.Result{
		Allowed: true, Granted: took, Source: v.Source, Delay: time.Duration(v.Delay), Policy: l.cfg.Name,
	}
	if e := l.terms.Store.Lookup(key); e != nil {
		r := e.Plan.Load()
		res.Limit = r.Shown
		left := min(e.UnitsLeft(r)+account.UnitsOf(e.Word.Load()), r.Burst)
		res.Remaining = max(0, left)
		res.ResetAfter = l.terms.ResetAfter(r, left, e.Ends.Load())
	}
	return l.terms.Answer(key, nil, res, took)
}

// takeAtMost takes up to n units in hand, of a key in memory: leased units, or else the credit that is left.
func (l *Limiter) takeAtMost(key string, n int64) (took int64, v account.Verdict) {
	if r := l.control.Plan(); l.control.Exactly(r) || l.terms.Store.Get(key) == nil && !r.Bucket.Queue {
		return 0, v
	}
	e, _, err := l.terms.Lock(key, nil)
	if e == nil || err != nil {
		return 0, v
	}
	ev := e.Event()
	took, v = e.Account.AtMost(&ev.Conditions, n, ev.Now)
	return took, ev.End(v)
}

// Peek returns the answer that a call for one unit would get, and takes nothing. For a key that this process knows,
// it is an estimate from memory. Otherwise Peek asks Redis, for at most Config.MaxWait, and the Source is
// SourceRedis. So it does every few seconds for a key that is used up: units may have been given back. Without an
// answer, the fallback tells what it would decide: SourceFallback, with the units that the share has left. Nothing is
// counted.
func (l *Limiter) Peek(ctx context.Context, key string) (hybridlimit.Result, error) {
	if err := l.control.Check(key, 1, l.maxKey); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.terms.Switched(0); ok {
		return res, nil
	}
	if res, ok := l.terms.PausedAnswer(key); ok {
		return res, nil
	}
	if res, ok, err := l.uncountedKey(key, 1); ok || err != nil {
		res.Granted = 0
		return res, err
	}
	var here hybridlimit.Result
	var f account.Forecast
	var err error
	if !l.control.Exactly(l.control.Plan()) && l.terms.Store.Get(key) != nil {
		if here, f, err = l.peekHere(key); err != nil || f.Known && !f.Stale {
			return here, err
		}
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: at.Plan.Shown, Policy: l.cfg.Name}
	ans, _, ok := l.direct.Ask(ctx, at, algo.Op{})
	if !ok {
		res, err := l.unanswered(ctx, res)
		if errors.Is(err, hybridlimit.ErrUnavailable) {
			return l.direct.PeekAlone(key, at), nil
		}
		return res, err
	}
	res.Source, res.Remaining = hybridlimit.SourceRedis, max(0, at.Plan.Bucket.Units(ans.Level)-f.Owed)
	if res.Allowed = res.Remaining > 0; !res.Allowed {
		if f.Known {
			l.direct.StillNone(key)
		}
		res.RetryAfter = time.Duration(ans.Retry) * time.Microsecond
	}
	res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	return res, nil
}

// peekHere is Peek from memory. The forecast is not Known if there is no view.
func (l *Limiter) peekHere(key string) (res hybridlimit.Result, f account.Forecast, err error) {
	e, res, err := l.terms.Lock(key, nil)
	if e == nil || err != nil {
		return res, f, err
	}
	r := e.Plan.Load()
	ev := e.Event()
	f = e.Account.Peek(&ev.Conditions, ev.Now)
	v := ev.End(account.Verdict{})
	if !f.Known {
		return res, f, nil
	}
	res.Allowed, res.Source, res.Delay = f.Allowed, f.Source, time.Duration(f.Delay)
	res.Limit, res.Remaining = r.Shown, keys.Remaining(v)
	if f.Source == hybridlimit.SourceFallback {
		res.Remaining = f.Left
	}
	if !res.Allowed {
		res.RetryAfter, res.Remaining, v.Left = max(time.Microsecond, time.Duration(f.Until)), 0, min(v.Left, 0)
	}
	res.ResetAfter = l.terms.ResetAfter(r, v.Left, v.Ends)
	return res, f, nil
}

// Charge debits an actual cost after the fact, without a condition. It takes units in hand first. The rest is owed,
// and Redis debits it down to one burst of debt. Charge never waits for a decision. n may exceed the burst. While
// Redis is away, this process's share pays too: a bucket goes into debt there, and a window has nothing left. With
// Charge, the bound of the package documentation holds for the decisions, not for the charged units.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.terms.Uncounted(n); ok {
		return res, nil
	}
	if res, ok, err := l.uncountedKey(key, n); ok || err != nil {
		res.Allowed, res.Granted, res.RetryAfter = err == nil, n, 0
		return res, err
	}
	var e *keys.Entry
	var res hybridlimit.Result
	var err error
	if !l.control.Exactly(l.control.Plan()) {
		if e, res, err = l.terms.Lock(key, nil); err != nil {
			return hybridlimit.Result{}, err
		}
	}
	if e == nil {
		return l.chargeNow(ctx, key, n)
	}
	return l.chargeLater(e, res, n), nil
}

// chargeLater is Charge for a locked entry. It unlocks it.
func (l *Limiter) chargeLater(e *keys.Entry, res hybridlimit.Result, n int64) hybridlimit.Result {
	r := e.Plan.Load()
	res.Limit, res.Allowed, res.Granted, res.Source = r.Shown, true, n, hybridlimit.SourceCredit
	ev := e.Event()
	v, counted := e.Account.Charge(&ev.Conditions, n, ev.Now)
	v = ev.End(v)
	l.terms.Count.Admitted.Add(counted)
	res.Remaining = keys.Remaining(v)
	res.ResetAfter = l.terms.ResetAfter(r, v.Left, v.Ends)
	return res
}

// chargeNow is Charge if Redis decides each call, and for a key that finds no room in memory. It is one message, sent
// once. If Redis does not answer it, the charge is lost, and the error reports it. While Redis is known to be away, a
// charge is owed.
func (l *Limiter) chargeNow(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	at, err := l.terms.Place(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if l.terms.Alone(at.Tag) {
		if e, res, err := l.terms.LockAt(key, at); e != nil || err != nil {
			if err != nil {
				return hybridlimit.Result{}, err
			}
			return l.chargeLater(e, res, n), nil
		}
	}
	res := hybridlimit.Result{Limit: at.Plan.Shown, Policy: l.cfg.Name}
	counted := min(n, account.MaxCharge)
	sent := l.hub.clock.Now()
	ans, _, ok := l.direct.Ask(ctx, at, algo.Op{Owed: counted})
	l.terms.Count.Admitted.Add(counted)
	if !ok {
		l.terms.Count.Dropped.Add(counted)
		return l.unanswered(ctx, res)
	}
	l.terms.Count.Acked.Add(counted)
	if at.Plan.Units(ans.Level) < 1 { // this refusal lasts longer than an earlier one
		l.direct.Refuse(key, at, 1, ans, sent, l.hub.clock.Now())
	}
	res.Allowed, res.Granted, res.Source = true, n, hybridlimit.SourceRedis
	res.Remaining = at.Plan.Bucket.Units(ans.Level)
	res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	return res, nil
}

// uncountedKey returns the answer for a key whose limit counts nothing.
func (l *Limiter) uncountedKey(key string, n int64) (res hybridlimit.Result, ok bool, err error) {
	if !l.control.Keyed() && !account.Static(l.control.Plan().Limit) && !l.control.Canary() {
		return res, false, nil
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return res, false, err
	}
	res, ok = keys.Static(at.Plan, hybridlimit.Result{Policy: l.cfg.Name}, n)
	return res, ok, nil
}

// answered is answer, but does nothing if there is no answer.
func (l *Limiter) answered(key string, res hybridlimit.Result, n int64) hybridlimit.Result {
	if res.Source == hybridlimit.SourceUnknown {
		return res
	}
	return l.terms.Answer(key, nil, res, n)
}

// unanswered returns the reason why direct.Asker.Ask has no answer.
func (l *Limiter) unanswered(ctx context.Context, res hybridlimit.Result) (hybridlimit.Result, error) {
	switch {
	case l.control.Closed.Load():
		return hybridlimit.Result{}, hybridlimit.ErrClosed
	case ctx.Err() != nil:
		return hybridlimit.Result{}, ctx.Err()
	}
	return res, hybridlimit.ErrUnavailable
}

// History returns the admissions of key that a sliding log still counts, from all processes, the oldest first. Each has
// the exact time of Redis's clock, and the ID if hybridlimit.WithRequestID named the request. Units given back,
// denials, and admissions of the fallback while Redis did not answer are not included. Other algorithms keep no log:
// the error is ErrUnsupported. If Redis does not answer, it is ErrUnavailable.
//
// History is not a decision, and MaxWait does not bound it. It costs one message for every 250 entries. A message keeps
// Redis busy for up to a millisecond, and may take HubConfig.SyncTimeout. All entries are held in memory: at most as
// many as the limit has units, or twice that in debt. The result is not a snapshot: between two messages the oldest
// entries may leave, and as many that are newer than the first message may be at the end.
func (l *Limiter) History(ctx context.Context, key string) ([]hybridlimit.Admission, error) {
	if err := l.control.Check(key, 1, l.maxKey); err != nil {
		return nil, err
	}
	at, err := l.terms.Place(key)
	if err != nil {
		return nil, err
	}
	if at.Plan.Limit.Algorithm != hybridlimit.AlgSlidingLog {
		return nil, fmt.Errorf("hybrid: History(%q): %w: %v keeps no log", key, hybridlimit.ErrUnsupported, at.Plan.Limit.Algorithm)
	}
	return wire.ReadHistory(func(after int64) (wire.Page, error) { return l.direct.HistoryPage(ctx, at, after) })
}
