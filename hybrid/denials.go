package hybrid

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

const (
	msgDenied     = "hybridlimit: denied"
	msgMoreDenied = "hybridlimit: more denials"
)

// denials bounds how often a denial is logged. It also counts the denials without a line of their own: each is in the "more" of
// one later line. The fast path counts its denials in the budgets; they can be logged when the budgets have been taken back.
type denials struct {
	line *rate.Limiter // by the hub's clock

	mu     sync.Mutex // guards the fields below; not held while logging
	told   int64      // logged denials, without those from budgets
	words  int64      // logged denials from budgets
	waited bool       // the last heartbeat found unlogged denials, and no line was written since
	closed bool       // the limiter is closed: a line may be written at any time
}

func newDenials(every time.Duration) denials {
	return denials{line: rate.NewLimiter(rate.Every(every), 1)}
}

// due reports whether a line is due. A rounding error does not matter: take decides. Call it without d.mu.
func (d *denials) due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed || d.line.TokensAt(now) > 1-1e-9
}

// take returns the number of unlogged denials and marks them as logged. It returns false and marks nothing in two cases: the next
// line is not due, or fewer than least denials from outside the budgets are unlogged. With least 1, the second case means that
// another line has already counted the caller's denial. Call it without d.mu.
func (d *denials) take(c *counters, least int64, now time.Time) (untold int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	told, words := c.denials()
	untold = told - d.told
	if untold < least || !d.closed && !d.line.AllowN(now, 1) {
		return 0, false
	}
	// c.denials may have been too high for a moment when d.words was set: the next lines make up for it.
	fresh := max(0, words-d.words)
	d.told, d.words, d.waited = told, d.words+fresh, false
	return untold + fresh, true
}

// waiting reports whether denials have waited for a line since the previous heartbeat. Call it without d.mu.
func (d *denials) waiting(c *counters) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	told, words := c.denials()
	was := d.waited
	d.waited = told > d.told || words > d.words
	return was && d.waited
}

// denials returns the number of counted denials, those from budgets separately. A call for several units that is under way may
// count in words once per unit, or not at all.
func (c *counters) denials() (others, words int64) {
	for src := range c.denied {
		others += c.denied[src].Load()
	}
	words = c.words[account.DenyBudget].units.Load()
	return others, words - c.words[account.DenyBudget].more.Load()
}

// logDenial writes a line about a counted denial, unless the last line is less than Config.LogDenials old. The line names the
// limit of r, or the key's own limit if r is nil. Call it without locks.
func (l *Limiter) logDenial(key string, r *account.Plan, n int64, res *hybridlimit.Result) {
	if l.cfg.LogDenials == 0 || res.Allowed && !res.Shadowed {
		return
	}
	d, now := &l.denials, l.hub.clock.Time(l.hub.clock.Now())
	if !d.due(now) {
		return
	}
	untold, ok := d.take(&l.count, 1, now)
	if !ok {
		return
	}
	attrs := []any{
		slog.String("limiter", l.cfg.Name), slog.String("key_digest", l.hub.names.Digest(l.cfg.Name, key)), slog.Int64("units", n),
		slog.String("limit", limitText(l.limitOf(key, r))), slog.String("source", res.Source.String()),
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
	l.hub.log.write(slog.LevelInfo, msgDenied, 0, attrs)
}

// beatDenials is called with each heartbeat, so that denials of the fast path are logged too. When a line is due, it takes back
// the budgets that have denied. The next denial of such a key then reaches logDenial. Denials that are still unlogged at the next
// heartbeat get a line without a key.
func (l *Limiter) beatDenials() {
	if l.cfg.LogDenials == 0 || !l.denials.due(l.hub.clock.Time(l.hub.clock.Now())) {
		return
	}
	l.store.sweep(func(e *entry) {
		if w := e.word.Load(); account.KindOf(w) == account.DenyBudget && account.UnitsOf(w) > 0 {
			e.lock()
			e.begin(l.hub.clock.Now())
			e.unlock()
		}
	})
	if l.denials.waiting(&l.count) {
		l.tellDenials()
	}
}

// endDenials logs all unlogged denials when the limiter closes: no heartbeat comes later.
func (l *Limiter) endDenials() {
	if l.cfg.LogDenials == 0 {
		return
	}
	d := &l.denials
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	l.tellDenials()
}

// tellDenials writes a line without a key about the unlogged denials.
func (l *Limiter) tellDenials() {
	if untold, ok := l.denials.take(&l.count, 0, l.hub.clock.Time(l.hub.clock.Now())); ok && untold > 0 {
		l.hub.log.write(slog.LevelInfo, msgMoreDenied, 0, []any{
			slog.String("limiter", l.cfg.Name), slog.String("limit", limitText(l.Limit())), slog.Int64("more", untold),
		})
	}
}

// limitOf returns the limit of r, or the key's own limit if r is nil. It may call Config.LimitFor.
func (l *Limiter) limitOf(key string, r *account.Plan) hybridlimit.Limit {
	if r != nil {
		return r.Limit
	}
	if e := l.store.get(key); e != nil {
		return e.plan.Load().Limit
	}
	return l.limitFor(key)
}

// limitText returns a limit in the form that ParseLimit reads: "100/s burst 200".
func limitText(limit hybridlimit.Limit) string {
	text, err := limit.MarshalText()
	if err != nil {
		return limit.String()
	}
	return string(text)
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
