package rls

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// call is one request on its way.
type call struct {
	s        *Service
	parts    []part
	verdicts []verdict         // of the parts, by index
	asks     []hybridlimit.Ask // of the parts that are asked together
	together []int             // their indexes
	denied   bool              // a rule that is neither in shadow nor a quota denies, or all quotas are used up
	quotas   bool              // the latter
	why      purpose
}

// part is a descriptor of a request.
type part struct {
	rule    *ruleState      // nil: no rule, or an override
	limiter *hybrid.Limiter // with the class of floor
	kind    kind            // of limiter
	floor   float64
	limit   hybridlimit.Limit // above the floor
	key     string
	counts  *ruleCounts
	n       int64
	act     act
	named   bool // n is a cost that the caller names; it is booked
	apart   bool // asked on its own
}

// act is the verb of a descriptor.
type act uint8

const (
	actNone act = iota
	actAsk
	actLook     // an addend of 0, or a check: nothing is taken
	actGiveBack // a negative addend
)

// maxHits is the largest number of units that a descriptor takes; it is above every limit of the protocol. The sum of
// all descriptors cannot overflow.
const maxHits = 1 << 40

var calls = sync.Pool{New: func() any { return new(call) }}

// free keeps the memory of a small call for the next one.
func (c *call) free() {
	if cap(c.parts) > 64 {
		return
	}
	clear(c.parts) // a pool must not keep the keys of a request
	clear(c.verdicts)
	clear(c.asks)
	*c = call{parts: c.parts[:0], verdicts: c.verdicts[:0], asks: c.asks[:0], together: c.together[:0]}
	calls.Put(c)
}

// resolve finds the rules of a request, and the verb of each descriptor.
func (c *call) resolve(ctx context.Context, s *Service, st *state, req *pb.RateLimitRequest) error {
	c.s = s
	known, replaces := true, false
	for _, d := range req.GetDescriptors() {
		c.parts, c.verdicts = append(c.parts, part{}), append(c.verdicts, verdict{})
		p, v := &c.parts[len(c.parts)-1], &c.verdicts[len(c.verdicts)-1]
		if len(c.parts) > 1 && ctx.Err() != nil && !namesCosts(req) { // expressions take time
			return ctx.Err()
		}
		p.addend(req, d)
		p.named = p.named && !s.options.AskCosts
		switch {
		case c.why == checks && p.act != actGiveBack:
			p.act = actLook
		case c.why == checks:
			p.n, p.act = 0, actLook
		case c.why == reports:
			p.named = p.act == actAsk
		}
		var err error
		if d.GetLimit() == nil {
			known = c.rule(st, req.GetDomain(), d, p, v)
			replaces = replaces || p.rule != nil && len(p.rule.Replaces) > 0
		} else if known = st.domains[req.GetDomain()]; known {
			err = c.override(req.GetDomain(), d, p, v)
		} else {
			p.act = actNone
		}
		if err != nil {
			return err
		}
	}
	if !known {
		s.metrics.unknownDomain(req.GetDomain())
	}
	if replaces {
		c.replace()
	}
	return nil
}

// namesCosts reports whether a request has a cost that is booked also if its caller has left.
func namesCosts(req *pb.RateLimitRequest) bool {
	return req.GetHitsAddend() > 1 || slices.ContainsFunc(req.GetDescriptors(), func(d *ratelimit.RateLimitDescriptor) bool {
		return d.GetHitsAddend().GetValue() > 0
	})
}

// addend reads the units of a descriptor.
func (p *part) addend(req *pb.RateLimitRequest, d *ratelimit.RateLimitDescriptor) {
	p.n, p.act = max(1, int64(req.GetHitsAddend())), actAsk
	p.named = p.n > 1
	if own := d.GetHitsAddend(); own != nil {
		p.n, p.named = int64(min(own.GetValue(), maxHits)), true
	}
	switch {
	case p.n == 0:
		p.act = actLook
	case d.GetIsNegativeHits():
		p.act = actGiveBack
	}
}

// rule applies the rule of a descriptor. It reports whether the domain is known.
func (c *call) rule(st *state, domain string, d *ratelimit.RateLimitDescriptor, p *part, v *verdict) (known bool) {
	m, known := st.set.Find(domain, d)
	if m.Rule == nil {
		p.act = actNone
		if known {
			st.without[domain].Add(1)
		}
		return known
	}
	r := st.rules[m.Rule]
	p.rule = r
	if r.Unlimited {
		p.act, v.state = actNone, unlimited
		return known
	}
	p.limiter, p.kind, p.floor, p.limit, p.counts = r.limiter, r.kind, r.Floor, r.limit, r.counts
	if r.limiter != nil {
		p.key = r.prefix + m.Key
	}
	if m.Metric != r.Path {
		p.counts = c.s.metrics.rule(m.Metric)
	}
	*v = verdict{state: asked, limit: r.answer, item: r.item, algorithm: r.Limit.Algorithm, calendar: r.Limit.Calendar, shadow: r.Shadow, quota: r.Quota, metadata: r.Metadata}
	o := &c.s.options
	p.apart = p.named || r.Shadow || r.Quota || o.Shadow || o.Quota
	return known
}

// override applies the limit that a descriptor brings.
func (c *call) override(domain string, d *ratelimit.RateLimitDescriptor, p *part, v *verdict) error {
	given, err := overrideOf(d.GetLimit())
	if err != nil {
		return err
	}
	p.limit, p.counts = given.limit, c.s.metrics.override(domain)
	*v = verdict{state: asked, limit: given.answer, algorithm: given.limit.Algorithm}
	o := &c.s.options
	p.apart = p.named || o.Shadow || o.Quota
	if given.limit.Algorithm == hybridlimit.AlgBlocked {
		return nil
	}
	p.kind = kind{domain: domain, algorithm: hybridlimit.AlgFixedWindow}
	if p.limiter, err = c.s.limiters.get(p.kind); err != nil {
		return err
	}
	if !o.NoDraftHeaders {
		v.item = itemOf("", given.answer, given.limit)
	}
	p.key = keyOfOverride(given.period, d.GetEntries())
	if !c.s.overrides.set(p.key, given.limit) {
		return nil
	}
	if err := p.limiter.Invalidate(p.key); !errors.Is(err, hybridlimit.ErrClosed) {
		return err
	}
	return nil // decide finds the next limiter, which asks for the limit of each key
}

// replace takes out the rules that another rule of the request replaces by name. A rule that is replaced itself
// replaces others too, as in envoyproxy/ratelimit.
func (c *call) replace() {
	names := map[string]bool{}
	for i := range c.parts {
		if r := c.parts[i].rule; r != nil {
			for _, name := range r.Replaces {
				names[name] = true
			}
		}
	}
	for i := range c.parts {
		r := c.parts[i].rule
		if r == nil || r.Name == "" || r.Unlimited || !names[r.Name] {
			continue
		}
		c.parts[i] = part{}
		c.verdicts[i] = verdict{state: replaced}
	}
}

// verdictState is the way in which a descriptor was answered.
type verdictState uint8

const (
	noRule verdictState = iota
	unlimited
	replaced
	asked
)

// verdict is the answer about one descriptor. compose makes a response of verdicts.
type verdict struct {
	state     verdictState
	limit     *pb.RateLimitResponse_RateLimit
	item      *ratelimitheader.Item // of the draft's fields; nil: not published
	algorithm hybridlimit.Algorithm
	calendar  hybridlimit.Calendar
	shadow    bool // the rule is in shadow
	quota     bool // the rule is a quota
	metadata  *structpb.Struct

	over      bool
	remaining int64
	reset     int64 // seconds; 0: not known, or the count is unused
	retry     int64 // seconds; 0: waiting does not help, or the rule does not deny
	holds     bool  // the figures follow from the fleet's limit
}

// say stores the answer of a limiter.
func (v *verdict) say(res *hybridlimit.Result) {
	v.over, v.remaining = !res.Allowed, max(0, res.Remaining)
	v.reset = ratelimitheader.Seconds(res.ResetAfter)
	if v.over && res.RetryAfter != hybridlimit.Never {
		v.retry = max(1, ratelimitheader.Seconds(res.RetryAfter))
	}
	switch res.Source {
	case hybridlimit.SourceFallback, hybridlimit.SourceTimeout, hybridlimit.SourceSwitch, hybridlimit.SourceUnknown:
		v.holds = false
	default:
		v.holds = true
	}
}

// clamp returns n as the protocol has it.
func clamp(n int64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) }
