package rls

import (
	"context"
	"errors"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// errFallback is the error of Options.FailError.
var errFallback = errors.New("rls: Redis does not answer")

// decide asks the limiters. Units are given back first. Then come the rules that are only looked at, and then those
// that deny together: all are admitted or none. Rules in shadow and quotas are asked last, each on its own. If a rule
// denies the request, nothing is taken from the others.
func (c *call) decide(ctx context.Context) error {
	for i := range c.parts {
		var err error
		switch p := &c.parts[i]; {
		case p.act == actGiveBack:
			err = c.giveBack(ctx, i)
		case p.act == actAsk && !p.apart:
			c.together = append(c.together, i)
		}
		if err != nil {
			return err
		}
	}
	for i := range c.parts {
		if c.parts[i].act != actLook {
			continue
		}
		if err := c.look(ctx, i); err != nil {
			return err
		}
		c.denied = c.denied || c.verdicts[i].over && !c.parts[i].apart
	}
	if err := c.askTogether(ctx); err != nil {
		return err
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.act != actAsk || !p.apart {
			continue
		}
		verb := c.ask
		if c.denied {
			verb = c.look
		}
		if err := verb(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// askTogether decides the rules that are admitted together or not at all.
func (c *call) askTogether(ctx context.Context) error {
	switch {
	case len(c.together) == 0:
		return nil
	case len(c.together) == 1 && !c.denied:
		i := c.together[0]
		err := c.ask(ctx, i)
		c.denied = c.verdicts[i].over
		return err
	}
	for _, i := range c.together {
		if c.parts[i].limiter == nil { // blocked
			c.denied = true
		}
	}
	if !c.denied {
		if err := c.askJoint(ctx); err != nil {
			return err
		}
	}
	if !c.denied {
		return nil
	}
	for at, i := range c.together { // rules without an answer of their own
		if at < len(c.asks) && c.asks[at].Result.Source != hybridlimit.SourceUnknown {
			if err := c.exhaust(ctx, i); err != nil {
				return err
			}
			continue
		}
		if err := c.look(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// askJoint asks all or none.
func (c *call) askJoint(ctx context.Context) error {
	res, err := c.allowJoint(ctx)
	for err != nil && c.renew(ctx, &err, c.together...) {
		res, err = c.allowJoint(ctx)
	}
	if err != nil {
		return err
	}
	c.denied = !res.Allowed
	for at, i := range c.together {
		if one := &c.asks[at].Result; one.Source != hybridlimit.SourceUnknown {
			if err := c.said(i, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// allowJoint is AllowJoint of the parts that are asked together.
func (c *call) allowJoint(ctx context.Context) (hybridlimit.Result, error) {
	c.asks = c.asks[:0]
	for _, i := range c.together {
		p := &c.parts[i]
		c.asks = append(c.asks, hybridlimit.Ask{Limiter: p.limiter, Key: p.key, N: p.n})
	}
	return c.parts[c.together[0]].limiter.AllowJoint(ctx, c.asks)
}

// ask asks one rule.
func (c *call) ask(ctx context.Context, i int) error {
	p := &c.parts[i]
	if p.limiter == nil {
		c.verdicts[i].over = true
		return nil
	}
	res, err := allow(ctx, p.limiter, p.key, p.n)
	for err != nil && c.renew(ctx, &err, i) {
		res, err = allow(ctx, p.limiter, p.key, p.n)
	}
	if err != nil {
		return err
	}
	if err := c.said(i, &res); err != nil {
		return err
	}
	if res.Allowed {
		return nil
	}
	return c.exhaust(ctx, i)
}

// allow is AllowN, by the shorter way if possible.
func allow(ctx context.Context, l *hybrid.Limiter, key string, n int64) (hybridlimit.Result, error) {
	if n == 1 {
		return l.Allow(ctx, key)
	}
	return l.AllowN(ctx, key, n)
}

// exhaust takes the units that are left from a rule that has denied more of them, if the units were used all the same:
// a rule in shadow and a quota deny nothing, and an addend of the descriptor's own is in general the cost of a request
// that is over (apply_on_stream_done in Envoy). Without this, a client whose every cost is above the rest would never
// use the rest up. envoyproxy/ratelimit counts such units too.
func (c *call) exhaust(ctx context.Context, i int) error {
	p, v := &c.parts[i], &c.verdicts[i]
	if p.n < 2 || p.limiter == nil || v.remaining < 1 || !p.own && !v.shadow && !v.quota && !c.s.options.Shadow && !c.s.options.Quota {
		return nil
	}
	res, err := p.limiter.AllowAtMost(ctx, p.key, p.n)
	for err != nil && c.renew(ctx, &err, i) {
		res, err = p.limiter.AllowAtMost(ctx, p.key, p.n)
	}
	if err != nil {
		return err
	}
	v.remaining = max(0, res.Remaining)
	return nil
}

// look answers about a rule and takes nothing. With an addend of 0 the rule is over if it has no unit left.
func (c *call) look(ctx context.Context, i int) error {
	p, v := &c.parts[i], &c.verdicts[i]
	if p.limiter == nil {
		v.over = true
		return nil
	}
	res, err := p.limiter.Peek(ctx, p.key)
	for err != nil && c.renew(ctx, &err, i) {
		res, err = p.limiter.Peek(ctx, p.key)
	}
	if errors.Is(err, hybridlimit.ErrUnavailable) {
		return c.blind(i)
	}
	if err != nil {
		return err
	}
	if p.n > res.Remaining && res.Allowed {
		res.Allowed, res.RetryAfter = false, hybridlimit.Never // not known
	}
	return c.said(i, &res)
}

// blind answers about a rule that is neither in memory nor, without Redis, known elsewhere: the key is as an unused
// one, unless the fallback denies everything.
func (c *call) blind(i int) error {
	p, v := &c.parts[i], &c.verdicts[i]
	if c.s.options.FailError {
		return errFallback
	}
	v.remaining = p.limit.BurstSize()
	if v.over = c.s.options.Limiter.Fallback == hybrid.FallbackDenyAll; v.over {
		v.remaining = 0
	}
	return nil
}

// giveBack gives the units of a negative addend back.
func (c *call) giveBack(ctx context.Context, i int) error {
	p := &c.parts[i]
	if p.limiter == nil {
		return nil
	}
	res, err := p.limiter.Refund(ctx, p.key, p.n)
	for err != nil && c.renew(ctx, &err, i) {
		res, err = p.limiter.Refund(ctx, p.key, p.n)
	}
	if errors.Is(err, hybridlimit.ErrUnavailable) && ctx.Err() == nil {
		c.s.metrics.redisErrors.Add(1) // there is no memory for the key, and no Redis: the units are lost
		return c.blind(i)
	}
	if err != nil {
		return err
	}
	return c.said(i, &res)
}

// said stores an answer.
func (c *call) said(i int, res *hybridlimit.Result) error {
	if c.s.options.FailError && res.Source == hybridlimit.SourceFallback {
		return errFallback
	}
	c.verdicts[i].say(res)
	return nil
}

// count adds the decisions to the counters of the rules.
func (c *call) count() {
	for i := range c.parts {
		p, v := &c.parts[i], &c.verdicts[i]
		if p.counts == nil || p.act == actNone || p.act == actGiveBack {
			continue
		}
		p.counts.add(p.n, p.limit.BurstSize(), v)
	}
	if c.s.options.Shadow && overall(c.verdicts, c.s.options.Quota) {
		c.s.metrics.globalShadow.Add(1)
	}
}
