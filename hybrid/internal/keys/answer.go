package keys

import (
	"log/slog"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Answer counts a decision, applies Shadow, and logs a denial under a plan, or under the key's own limit if p is nil.
// All verbs use it except AllowAll, which does the same once for all its limits. Call it without any lock.
func (t *Terms) Answer(key string, p *account.Plan, res hybridlimit.Result, n int64) hybridlimit.Result {
	res = t.Tally(res, n)
	t.Denied(key, p, n, &res)
	t.counted(key, &res, n)
	return res
}

// counted notes a decision about a key that may be split. Only those of Redis, or of what it has said, tell something
// about a part.
func (t *Terms) counted(key string, res *hybridlimit.Result, n int64) {
	if t.Split == nil || res.Source == hybridlimit.SourceFallback || res.Source == hybridlimit.SourceStatic {
		return
	}
	if e := t.Store.Get(key); e != nil {
		p := e.Plan.Load()
		t.Split.Count(key, p.Part, p.Rate(), n, !res.Allowed || res.Shadowed, t.Clock.Now())
	}
}

// Tally counts a decision and applies Shadow.
func (t *Terms) Tally(res hybridlimit.Result, n int64) hybridlimit.Result {
	t.Count.Decided(res.Source, res.Allowed, n)
	return t.Control.Shadowed(res, n)
}

// Switched returns the answer if a switch decides.
func (t *Terms) Switched(n int64) (res hybridlimit.Result, ok bool) {
	if res, ok = t.Control.Switched(n); ok {
		t.Pace.Event(0)
	}
	return res, ok
}

// DecidedAbove is the answer to a call if a switch or a pause decides, which no limit does. It counts the decision. It
// counts no units, because no limit has admitted them.
func (t *Terms) DecidedAbove(key string, n int64) (res hybridlimit.Result, ok bool) {
	if res, ok = t.Switched(n); ok {
		t.Count.Decided(res.Source, res.Allowed, n)
		return res, ok
	}
	if res, ok = t.PausedAnswer(key); ok {
		t.Pace.Event(0)
		res = t.Tally(res, n)
	}
	return res, ok
}

// PausedAnswer returns the denial of a key that is paused.
func (t *Terms) PausedAnswer(key string) (res hybridlimit.Result, ok bool) {
	left := t.PausedFor(key, t.Clock.Now())
	if left <= 0 {
		return res, false
	}
	wait := time.Duration(left)
	return hybridlimit.Result{
		Limit: t.Control.Plan().Burst, RetryAfter: wait, ResetAfter: wait, Source: hybridlimit.SourcePause, Policy: t.Name,
	}, true
}

// PausedFor returns the time (ns) for which a key is paused still; not above 0: it is not.
func (t *Terms) PausedFor(key string, now int64) int64 {
	if !t.Paused.Any() {
		return 0
	}
	return t.Paused.Until(t.mark(key)) - now
}

// Uncounted returns the answer to a Charge or a Refund of units that SwitchAllowAll did not count.
func (t *Terms) Uncounted(n int64) (res hybridlimit.Result, ok bool) {
	if t.Control.Switch() != control.SwitchAllowAll {
		return res, false
	}
	return t.Switched(n)
}

// Drain takes back the budgets of all keys, so that the decisions made from them are counted.
func (t *Terms) Drain() {
	t.Store.Sweep(func(e *Entry) {
		if e.Word.Load() != 0 {
			e.TakeBack(t.Clock.Now())
		}
	})
}

// WriteOff counts the units that a closed limiter owed and held, and logs its last denials. Syncs in flight may still
// arrive: Settle or Drop counts them.
func (t *Terms) WriteOff() {
	now := t.Clock.Now()
	t.Store.Each(func(e *Entry) { e.WriteOff(now) })
	t.EndDenials()
}

// Denied counts a denial for the penalty of its key, and logs it under the limit of r, or under the key's own limit if r
// is nil. It does nothing for an admission. Call it without locks.
func (t *Terms) Denied(key string, r *account.Plan, n int64, res *hybridlimit.Result) {
	if t.Penalties != nil && punishes(res) && t.tooMany(key, 1, t.Clock.Now()) {
		t.punish(key)
	}
	t.logDenial(key, r, n, res)
}

// logDenial writes a line about a counted denial, unless the last line is less than Config.LogDenials old.
func (t *Terms) logDenial(key string, r *account.Plan, n int64, res *hybridlimit.Result) {
	if t.LogDenials == 0 || res.Allowed && !res.Shadowed {
		return
	}
	d, now := &t.Denials, t.Clock.Time(t.Clock.Now())
	if !d.Due(now) {
		return
	}
	untold, ok := d.Take(&t.Count, 1, now)
	if !ok {
		return
	}
	attrs := []any{
		slog.String("limiter", t.Name), slog.String("key_digest", t.Names.Digest(t.Name, key)), slog.Int64("units", n),
		slog.String("limit", control.LimitText(t.limitOf(key, r))), slog.String("source", res.Source.String()),
	}
	if res.RetryAfter == hybridlimit.Never {
		attrs = append(attrs, slog.String("retry_after", "never"))
	} else if !res.Shadowed {
		attrs = append(attrs, slog.Duration("retry_after", res.RetryAfter))
	}
	if res.Shadowed {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	if untold > 1 {
		attrs = append(attrs, slog.Int64("more", untold-1))
	}
	t.Log.Write(slog.LevelInfo, tell.MsgDenied, 0, attrs)
}

// BeatDenials is called with each heartbeat, so that penalties that failed and denials of the fast path are logged. When
// a line is due, it takes back the budgets that have denied. The next denial of such a key then reaches Denied. Denials
// that are still unlogged at the next heartbeat get a line without a key.
func (t *Terms) BeatDenials() {
	if t.Penalties != nil && t.Penalties.spared.Swap(false) {
		t.Log.Event(tell.MsgPausesFull, slog.String("limiter", t.Name))
	}
	if t.LogDenials == 0 || !t.Denials.Due(t.Clock.Time(t.Clock.Now())) {
		return
	}
	t.Store.Sweep(func(e *Entry) {
		if w := e.Word.Load(); account.KindOf(w) == account.DenyBudget && account.UnitsOf(w) > 0 {
			e.TakeBack(t.Clock.Now())
		}
	})
	if t.Denials.Waiting(&t.Count) {
		t.tellDenials()
	}
}

// EndDenials logs all unlogged denials when the limiter closes: no heartbeat comes later.
func (t *Terms) EndDenials() {
	if t.LogDenials == 0 {
		return
	}
	t.Denials.End()
	t.tellDenials()
}

// tellDenials writes a line without a key about the unlogged denials.
func (t *Terms) tellDenials() {
	if untold, ok := t.Denials.Take(&t.Count, 0, t.Clock.Time(t.Clock.Now())); ok && untold > 0 {
		t.Log.Write(slog.LevelInfo, tell.MsgMoreDenied, 0, []any{
			slog.String("limiter", t.Name), slog.String("limit", control.LimitText(t.Control.Plan().Limit)), slog.Int64("more", untold),
		})
	}
}

// limitOf returns the limit of r, or the key's own limit if r is nil. It may call Config.LimitFor.
func (t *Terms) limitOf(key string, r *account.Plan) hybridlimit.Limit {
	if r != nil {
		return r.Undivided().Limit
	}
	if e := t.Store.Get(key); e != nil {
		return e.Plan.Load().Undivided().Limit
	}
	limit, _ := t.Control.LimitFor(key)
	return limit
}

// Static returns the answer of a limit that counts nothing. ok is false for any other limit.
func Static(p *account.Plan, res hybridlimit.Result, n int64) (_ hybridlimit.Result, ok bool) {
	if !account.Static(p.Limit) {
		return res, false
	}
	res.Limit, res.Source = p.Shown, hybridlimit.SourceStatic
	if res.Allowed = p.Limit.Algorithm == hybridlimit.AlgUnlimited; res.Allowed {
		res.Granted, res.Remaining = n, res.Limit
	} else {
		res.RetryAfter = hybridlimit.Never
	}
	return res, true
}

// Never returns the denial of a cost that the burst can never hold.
func Never(res hybridlimit.Result) hybridlimit.Result {
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}
