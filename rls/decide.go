package rls

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// errFallback is the error of Options.FailError.
var errFallback = errors.New("rls: Redis does not answer")

// decide asks the limiters. Units are given back first, and named costs are booked. Then come the rules that are only
// looked at, and then those that deny together: all are admitted or none. Rules in shadow and quotas are asked last, each
// on its own. If a rule denies the request, nothing is taken from the others that name no cost.
func (c *call) decide(ctx context.Context) error {
	if c.s.options.StrictCompat {
		return c.decideEach(ctx)
	}
	var first error
	for i := range c.parts {
		switch p := &c.parts[i]; {
		case p.act == actGiveBack:
			first = cmp.Or(first, c.giveBack(ctx, i))
		case p.act == actAsk && !p.apart:
			c.together = append(c.together, i)
		}
	}
	if err := cmp.Or(first, c.bookAll(ctx)); err != nil {
		return err
	}
	for i := range c.parts {
		if c.parts[i].act != actLook {
			continue
		}
		if err := c.look(ctx, i); err != nil {
			return err
		}
		c.denies(i)
	}
	if err := c.lookAtQuotas(ctx); err != nil {
		return err
	}
	if err := c.askTogether(ctx); err != nil {
		return err
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.act != actAsk || !p.apart || p.named {
			continue
		}
		verb := c.ask
		switch {
		case c.quotas && c.verdicts[i].quota && !c.verdicts[i].shadow:
			continue // their first answer denied the request
		case c.denied:
			verb = c.look
		}
		if err := verb(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// decideEach asks each rule on its own, in the order of the request. It books the named costs although one of them failed.
func (c *call) decideEach(ctx context.Context) (first error) {
	own := context.WithoutCancel(ctx)
	for i := range c.parts {
		var err error
		switch p := &c.parts[i]; {
		case p.act == actAsk && p.named:
			err = c.book(own, i)
		case first != nil || p.act == actNone:
		case p.act == actGiveBack:
			err = c.giveBack(ctx, i)
		case p.act == actLook:
			err = c.look(ctx, i)
		default:
			err = c.ask(ctx, i)
		}
		first = cmp.Or(first, err)
	}
	return first
}

// denies notes that a rule denies the request, so that it takes nothing from others.
func (c *call) denies(i int) {
	o := &c.s.options
	c.denied = c.denied || c.verdicts[i].denies(o.Quota) && !o.Shadow
}

// bookAll books all named costs: in general they were used already. So a rule that denies, an error and the end of the
// caller's context keep no other cost from being booked. The error is the first one. Costs of different counters are booked
// at the same time, so that many of them wait for Redis no longer than one.
func (c *call) bookAll(ctx context.Context) (first error) {
	var counters [][]int // the parts of each counter
	for i := range c.parts {
		p := &c.parts[i]
		if p.act != actAsk || !p.named {
			continue
		}
		at := slices.IndexFunc(counters[max(0, len(counters)-maxSame):], func(of []int) bool {
			first := &c.parts[of[0]]
			return first.kind == p.kind && first.key == p.key // whatever their floors are
		})
		if at < 0 {
			counters = append(counters, []int{i})
		} else {
			at += max(0, len(counters)-maxSame)
			counters[at] = append(counters[at], i)
		}
	}
	if len(counters) == 0 {
		return nil
	}
	own, errs := context.WithoutCancel(ctx), make([]error, len(c.parts))
	book := func(parts []int) {
		for _, i := range parts {
			errs[i] = c.book(own, i)
		}
	}
	var others sync.WaitGroup
	for _, parts := range counters[1:] {
		others.Go(func() { book(parts) })
	}
	book(counters[0])
	others.Wait()
	for i, err := range errs {
		if p := &c.parts[i]; err == nil && p.act == actAsk && p.named {
			c.denies(i)
		}
		first = cmp.Or(first, err)
	}
	return first
}

// maxSame is the number of counters of a request among which one that stands twice is found. Costs of one counter that is
// not found are booked at the same time, which books the same units.
const maxSame = 32

// book counts a named cost at one rule. If it is above what is left, the rule is over, and the cost counts all the same: a
// bucket goes into debt, of one burst at most, and a window or log gives all that is left. A debt of a window would use up
// later windows, and one of a class with a floor the units that it leaves to others.
func (c *call) book(ctx context.Context, i int) error {
	p, v := &c.parts[i], &c.verdicts[i]
	err := c.askOne(ctx, i)
	if err != nil || !v.over || p.limiter == nil {
		return err
	}
	if a := p.limit.Algorithm; p.floor > 0 || a != hybridlimit.AlgTokenBucket && a != hybridlimit.AlgLeakyBucket {
		return c.takeRest(ctx, i)
	}
	res, err := p.limiter.Charge(ctx, p.key, p.n)
	for err != nil && c.renew(ctx, &err, i) {
		res, err = p.limiter.Charge(ctx, p.key, p.n)
	}
	if err != nil {
		return err
	}
	v.remaining, v.reset = 0, ratelimitheader.Seconds(res.ResetAfter)
	return nil
}

// lookAtQuotas denies a request whose quotas are all used up, so that it takes nothing from other rules.
func (c *call) lookAtQuotas(ctx context.Context) error {
	if o := &c.s.options; c.denied || o.Shadow || o.Quota {
		return nil
	}
	for i := range c.parts {
		p, v := &c.parts[i], &c.verdicts[i]
		if p.act != actAsk || p.named || !v.quota || v.shadow {
			continue
		}
		if err := c.look(ctx, i); err != nil {
			return err
		}
	}
	c.denied = spent(c.verdicts, false)
	c.quotas = c.denied
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

// ask asks one rule. A rule in shadow and a quota deny nothing, so units that do not fit were used all the same: they take
// the rest. Without this, a client whose every cost is above the rest would never use the rest up.
func (c *call) ask(ctx context.Context, i int) error {
	err := c.askOne(ctx, i)
	p, v, o := &c.parts[i], &c.verdicts[i], &c.s.options
	if err != nil || !v.over || p.n < 2 || p.limiter == nil || !v.shadow && !v.isQuota(o.Quota) && !o.Shadow {
		return err
	}
	return c.takeRest(ctx, i)
}

// askOne asks one rule for all units or none.
func (c *call) askOne(ctx context.Context, i int) error {
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
	return c.said(i, &res)
}

// allow is AllowN, by the shorter way if possible.
func allow(ctx context.Context, l *hybrid.Limiter, key string, n int64) (hybridlimit.Result, error) {
	if n == 1 {
		return l.Allow(ctx, key)
	}
	return l.AllowN(ctx, key, n)
}

// takeRest takes the units that are left from a rule that has denied more of them.
func (c *call) takeRest(ctx context.Context, i int) error {
	p, v := &c.parts[i], &c.verdicts[i]
	if v.remaining < 1 && v.holds && p.n <= p.limit.BurstSize() { // otherwise nobody may have looked at the rest
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
	if err != nil {
		return err
	}
	if p.n > res.Remaining && res.Allowed {
		res.Allowed, res.RetryAfter = false, hybridlimit.Never // not known
	}
	return c.said(i, &res)
}

// blind answers about a rule whose units were given back and are lost: the key is as an unused one, unless the fallback
// denies everything.
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
		if p.counts == nil || p.act == actNone || p.act == actGiveBack || c.why == checks && !v.over {
			continue // the units of a check that passes count when they are reported
		}
		p.counts.add(p.n, p.limit.BurstSize(), c.s.metrics.nearRatio, v)
	}
	if c.s.options.Shadow && denialOf(c.verdicts, c.s.options.Quota) != noDenial {
		c.s.metrics.globalShadow.Add(1)
	}
}
