package otellimit

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// counted is a limiter whose decisions are counted.
type counted struct {
	name     string
	next     hybridlimit.Limiter
	duration metric.Float64Histogram // nil: durations are not recorded
	policy   []metric.RecordOption   // made once, so that recording does not allocate

	allowed, denied [adapter.NumSources]atomic.Int64
	failed          atomic.Int64
	running         atomic.Int64 // permits of running calls
}

func newCounted(name string, next hybridlimit.Limiter, duration metric.Float64Histogram) *counted {
	of := metric.WithAttributeSet(attribute.NewSet(attrPolicy.String(name)))
	return &counted{name: name, next: next, duration: duration, policy: []metric.RecordOption{of}}
}

// Unwrap returns the wrapped limiter, for access to its other methods: httplimit
// uses Refund. Calls on it are not counted.
func (c *counted) Unwrap() hybridlimit.Limiter { return c.next }

// Allow is AllowN with a cost of 1.
func (c *counted) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return c.AllowN(ctx, key, 1)
}

// AllowN calls the limiter and counts the decision.
func (c *counted) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if c.duration == nil {
		res, err := c.next.AllowN(ctx, key, n)
		c.note(&res, err)
		return res, err
	}
	began := time.Now()
	res, err := c.next.AllowN(ctx, key, n)
	c.took(ctx, time.Since(began))
	c.note(&res, err)
	return res, err
}

// took records the duration of a decision.
func (c *counted) took(ctx context.Context, d time.Duration) {
	if c.duration != nil {
		c.duration.Record(ctx, d.Seconds(), c.policy...)
	}
}

// note counts a decision and an error.
func (c *counted) note(res *hybridlimit.Result, err error) {
	if err != nil {
		c.failed.Add(1)
	}
	switch {
	case !decided(err):
	case res.Allowed && !res.Shadowed:
		c.allowed[res.Source].Add(1)
	default: // for a shadow limit, also the calls that it would have denied
		c.denied[res.Source].Add(1)
	}
}

// Wrappers for limiters with more interfaces.
type (
	joining struct {
		*counted
		joint adapter.Joint
	}
	describing struct {
		*counted
		describer adapter.Describer
	}
	both struct {
		joining
		describer adapter.Describer
	}
)

// Name returns the limiter's name.
func (d describing) Name() string { return d.describer.Name() }

// Policy returns the limiter's policy for a key.
func (d describing) Policy(key string) hybridlimit.Policy { return d.describer.Policy(key) }

// Name returns the limiter's name.
func (b both) Name() string { return b.describer.Name() }

// Policy returns the limiter's policy for a key.
func (b both) Policy(key string) hybridlimit.Policy { return b.describer.Policy(key) }

// wrapper is a limiter of this package.
type wrapper interface{ wraps() *counted }

func (c *counted) wraps() *counted { return c }

// dressed returns c with the interfaces of its limiter.
func (c *counted) dressed() hybridlimit.Limiter {
	d, describes := c.next.(adapter.Describer)
	if a, acquires := c.next.(hybridlimit.Acquirer); acquires {
		if describes {
			return acquiringDescribed{acquiring{c, a}, d}
		}
		return acquiring{c, a}
	}
	j, joins := c.next.(adapter.Joint)
	switch {
	case describes && joins:
		return both{joining{c, j}, d}
	case describes:
		return describing{c, d}
	case joins:
		return joining{c, j}
	}
	return c
}

// wrappedJoint is a joint limiter around another one.
type wrappedJoint interface {
	adapter.Joint
	Unwrap() hybridlimit.Limiter
}

// inner returns the limiter that l wraps, or l itself.
func inner(l hybridlimit.Limiter) hybridlimit.Limiter {
	if w, ok := l.(wrapper); ok {
		return w.wraps().next
	}
	return l
}

// Joins reports whether the limiter can be asked together with the other one, wrapped or not.
func (j joining) Joins(other hybridlimit.Limiter) bool {
	return j.joint.Joins(inner(other)) || j.joint.Joins(news.Inner(other))
}

// AllowJoint calls the limiter. An allowed call counts for each limit with that limit's result. A denied call counts
// for the limits that denied. A failure counts for all limits. The duration is recorded for the same limits.
func (j joining) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	plain := make([]hybridlimit.Ask, len(asks))
	for i, a := range asks {
		plain[i] = hybridlimit.Ask{Limiter: inner(a.Limiter), Key: a.Key, N: a.N}
	}
	next := j.joint
	for _, a := range plain { // a wrapper of another package must take its own off
		if w, ok := a.Limiter.(wrappedJoint); ok {
			next = w
			break
		}
	}
	began := time.Now()
	res, err := next.AllowJoint(ctx, plain)
	took := time.Since(began)
	for i := range asks {
		one := plain[i].Result
		asks[i].Result, asks[i].Taken = one, plain[i].Taken
		if one.Source == hybridlimit.SourceUnknown {
			if err == nil {
				continue
			}
			one = res
		}
		if w, ok := asks[i].Limiter.(wrapper); ok {
			c := w.wraps()
			c.note(&one, err)
			c.took(ctx, took)
		}
	}
	return res, err
}
