package hybrid

import (
	"log/slog"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
)

const msgDenied = "hybridlimit: denied"

// denials bounds how often a denial is logged.
type denials struct {
	next atomic.Int64 // ns on the hub's clock: none before
	more atomic.Int64 // that were not logged since the last
}

// logDenial writes a line about a denial, unless there was one less than
// Config.LogDenials ago. The common path does not come here: its words last for
// 5 s, so a key that goes on being denied does. Call it under no lock.
func (l *Limiter) logDenial(key string, n int64, res *hybridlimit.Result) {
	if l.cfg.LogDenials == 0 || res.Allowed && !res.Shadowed {
		return
	}
	d, now := &l.denials, l.hub.clock.now()
	if next := d.next.Load(); now < next || !d.next.CompareAndSwap(next, now+int64(l.cfg.LogDenials)) {
		d.more.Add(1)
		return
	}
	attrs := []any{
		slog.String("limiter", l.cfg.Name), slog.String("key_digest", l.hub.names.Digest(l.cfg.Name, key)), slog.Int64("units", n),
		slog.Int64("limit", res.Limit), slog.String("source", res.Source.String()),
	}
	if res.RetryAfter == hybridlimit.Never {
		attrs = append(attrs, slog.String("retry_after", "never"))
	} else if !res.Shadowed {
		attrs = append(attrs, slog.Duration("retry_after", res.RetryAfter))
	}
	if res.Shadowed {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	if more := d.more.Swap(0); more > 0 {
		attrs = append(attrs, slog.Int64("more", more))
	}
	l.hub.log.write(slog.LevelInfo, msgDenied, 0, attrs)
}

// logJoint is logDenial, once, of a call under several limits: of the key that
// denied. A limit that counts nothing has no part.
func logJoint(asks []Ask, parts []*part, res *hybridlimit.Result) {
	for _, p := range parts {
		if p.Limiter.cfg.Name == res.Policy && p.res.Source == res.Source && !p.res.Allowed {
			p.Limiter.logDenial(p.Key, p.N, res)
			return
		}
	}
	for _, a := range asks {
		if a.Limiter.cfg.Name == res.Policy {
			a.Limiter.logDenial(a.Key, a.N, res)
			return
		}
	}
}
