package hybrid

import (
	"log/slog"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// logDenial writes a line about a counted denial, unless the last line is less than Config.LogDenials old. The line names the
// limit of r, or the key's own limit if r is nil. Call it without locks.
func (l *Limiter) logDenial(key string, r *account.Plan, n int64, res *hybridlimit.Result) {
	if l.cfg.LogDenials == 0 || res.Allowed && !res.Shadowed {
		return
	}
	d, now := &l.denials, l.hub.clock.Time(l.hub.clock.Now())
	if !d.Due(now) {
		return
	}
	untold, ok := d.Take(&l.terms.Count, 1, now)
	if !ok {
		return
	}
	attrs := []any{
		slog.String("limiter", l.cfg.Name), slog.String("key_digest", l.hub.names.Digest(l.cfg.Name, key)), slog.Int64("units", n),
		slog.String("limit", control.LimitText(l.limitOf(key, r))), slog.String("source", res.Source.String()),
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
	l.hub.log.Write(slog.LevelInfo, tell.MsgDenied, 0, attrs)
}

// beatDenials is called with each heartbeat, so that denials of the fast path are logged too. When a line is due, it takes back
// the budgets that have denied. The next denial of such a key then reaches logDenial. Denials that are still unlogged at the next
// heartbeat get a line without a key.
func (l *Limiter) beatDenials() {
	if l.cfg.LogDenials == 0 || !l.denials.Due(l.hub.clock.Time(l.hub.clock.Now())) {
		return
	}
	l.terms.Store.Sweep(func(e *keys.Entry) {
		if w := e.Word.Load(); account.KindOf(w) == account.DenyBudget && account.UnitsOf(w) > 0 {
			e.TakeBack(l.clock.Now())
		}
	})
	if l.denials.Waiting(&l.terms.Count) {
		l.tellDenials()
	}
}

// endDenials logs all unlogged denials when the limiter closes: no heartbeat comes later.
func (l *Limiter) endDenials() {
	if l.cfg.LogDenials == 0 {
		return
	}
	l.denials.End()
	l.tellDenials()
}

// tellDenials writes a line without a key about the unlogged denials.
func (l *Limiter) tellDenials() {
	if untold, ok := l.denials.Take(&l.terms.Count, 0, l.hub.clock.Time(l.hub.clock.Now())); ok && untold > 0 {
		l.hub.log.Write(slog.LevelInfo, tell.MsgMoreDenied, 0, []any{
			slog.String("limiter", l.cfg.Name), slog.String("limit", control.LimitText(l.Limit())), slog.Int64("more", untold),
		})
	}
}

// limitOf returns the limit of r, or the key's own limit if r is nil. It may call Config.LimitFor.
func (l *Limiter) limitOf(key string, r *account.Plan) hybridlimit.Limit {
	if r != nil {
		return r.Limit
	}
	if e := l.terms.Store.Get(key); e != nil {
		return e.Plan.Load().Limit
	}
	return l.limitFor(key)
}

// logJoint is logDenial for a call under several limits. It logs once, for the key that denied. The second loop is for limits that
// count nothing, which have no part.
func logJoint(asks []joint, parts []*part, res *hybridlimit.Result) {
	for _, p := range parts {
		if p.Limiter.cfg.Name == res.Policy && p.res.Source == res.Source && !p.res.Allowed {
			p.Limiter.logDenial(p.Key, p.plan, p.N, res)
			return
		}
	}
	for _, a := range asks {
		if a.Limiter.cfg.Name == res.Policy {
			a.Limiter.logDenial(a.Key, nil, a.N, res)
			return
		}
	}
}
