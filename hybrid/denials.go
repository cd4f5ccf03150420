package hybrid

import (
	"log/slog"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

const (
	msgDenied     = "hybridlimit: denied"
	msgMoreDenied = "hybridlimit: more denials"
)

// denials bounds how often a denial is logged, and counts those without a line
// of their own: each is in the "more" of a later line, once. The common path
// counts in its words; these are told of once they have been taken back.
type denials struct {
	next atomic.Int64 // ns on the hub's clock: no line before

	mu     sync.Mutex // guards what follows; not held while logging
	told   int64      // denials that lines have told of, but for those of words
	words  int64      // denials of words that lines have told of
	waited bool       // a heartbeat has found some to tell of, and no line came since
	closed bool       // nobody will tell later: a line is due at any time
}

// take is how many denials no line has told of, and notes that one does now.
// With least 1 it takes none where a line has told of all but those of words:
// then of the caller's too. Call it without d.mu.
func (d *denials) take(c *counters, least, now, every int64) (untold int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now < d.next.Load() {
		return 0, false
	}
	told, words := c.denials()
	untold = told - d.told
	if untold < least {
		return 0, false
	}
	// What is counted too high for a moment is made up for later.
	fresh := max(0, words-d.words)
	d.told, d.words, d.waited = told, d.words+fresh, false
	if !d.closed {
		d.next.Store(now + every)
	}
	return untold + fresh, true
}

// waiting reports whether denials wait for a line since the heartbeat before
// this one. Call it without d.mu.
func (d *denials) waiting(c *counters) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	told, words := c.denials()
	was := d.waited
	d.waited = told > d.told || words > d.words
	return was && d.waited
}

// denials is how many have been counted: of words apart from all others. Of a
// call of several units under way it may count all units or none.
func (c *counters) denials() (others, words int64) {
	for src := range c.denied {
		others += c.denied[src].Load()
	}
	words = c.words[account.DenyBudget].units.Load()
	return others, words - c.words[account.DenyBudget].more.Load()
}

// logDenial writes a line about a denial that was counted, under r or else the
// key's own limit, unless there was one less than Config.LogDenials ago. Call it
// under no lock.
func (l *Limiter) logDenial(key string, r *account.Plan, n int64, res *hybridlimit.Result) {
	if l.cfg.LogDenials == 0 || res.Allowed && !res.Shadowed {
		return
	}
	d, now := &l.denials, l.hub.clock.Now()
	if now < d.next.Load() {
		return
	}
	untold, ok := d.take(&l.count, 1, now, int64(l.cfg.LogDenials))
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

// beatDenials has denials of the common path told of, at each heartbeat at which
// a line is due. It takes back their words, so that a key that goes on being
// denied comes to logDenial; what no call has told of by the next heartbeat gets
// a line without a key.
func (l *Limiter) beatDenials() {
	if l.cfg.LogDenials == 0 || l.hub.clock.Now() < l.denials.next.Load() {
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

// endDenials tells of all that is left to tell. From here on nobody else would.
func (l *Limiter) endDenials() {
	if l.cfg.LogDenials == 0 {
		return
	}
	d := &l.denials
	d.mu.Lock()
	d.closed = true
	d.next.Store(math.MinInt64)
	d.mu.Unlock()
	l.tellDenials()
}

// tellDenials writes a line about denials that have none of their own.
func (l *Limiter) tellDenials() {
	if untold, ok := l.denials.take(&l.count, 0, l.hub.clock.Now(), int64(l.cfg.LogDenials)); ok && untold > 0 {
		l.hub.log.write(slog.LevelInfo, msgMoreDenied, 0, []any{
			slog.String("limiter", l.cfg.Name), slog.String("limit", limitText(l.Limit())), slog.Int64("more", untold),
		})
	}
}

// limitOf is the limit that a call was decided under: r's, or else the key's
// own. A callback of the user may run.
func (l *Limiter) limitOf(key string, r *account.Plan) hybridlimit.Limit {
	if r != nil {
		return r.Limit
	}
	if e := l.store.get(key); e != nil {
		return e.plan.Load().Limit
	}
	if l.cfg.LimitFor != nil {
		return l.cfg.LimitFor(key)
	}
	return l.Limit()
}

// limitText is a limit as ParseLimit reads it: "100/s burst 200".
func limitText(limit hybridlimit.Limit) string {
	text, err := limit.MarshalText()
	if err != nil {
		return limit.String()
	}
	return string(text)
}

// logJoint is logDenial, once, of a call under several limits: of the key that
// denied. A limit that counts nothing has no part.
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
