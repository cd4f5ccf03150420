package gate

import (
	"cmp"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// Item is an item of RateLimit-Policy, with the policy that it describes.
type Item struct {
	ratelimitheader.Item
	policy hybridlimit.Policy
	secret bool // not published
}

// Items are the items of a limit.
type Items struct {
	limit     *Limit
	describer adapter.Describer       // nil: the limiter does not describe its policy
	written   atomic.Pointer[[]*Item] // a cache of at most maxItems
}

// maxItems bounds the cached items of a limit. With LimitFor there is one per tier. Further items are formatted for
// each request.
const maxItems = 16

// NewItems returns the items of a limit.
func NewItems(l *Limit) *Items {
	describer, _ := l.Limiter.(adapter.Describer)
	return &Items{limit: l, describer: describer}
}

// Of returns the item of a part's policy, or nil if an answer must not have it: of a limit that did not decide, or that is
// not published.
func (s *Items) Of(p *Part) *Item {
	if p.Passed || !Published(p.Res.Source) {
		return nil
	}
	if it := s.of(p); it != nil && !it.secret {
		return it
	}
	return nil
}

// Published reports whether an answer follows from the fleet's limit. A decision without Redis, by a switch or by a pause
// does not. With SourceUnknown the figures are unknown, but the limit holds.
func Published(s hybridlimit.Source) bool {
	return s != hybridlimit.SourceFallback && s != hybridlimit.SourceTimeout && s != hybridlimit.SourceSwitch && s != hybridlimit.SourcePause
}

// of returns the item for a part, from the cache if possible. Without a describer it uses the Result, and returns nil
// if that has no figures.
func (s *Items) of(part *Part) *Item {
	var p hybridlimit.Policy
	describer, res := s.describer, &part.Res
	if of, ok := part.View.(adapter.Describer); ok {
		describer = of
	}
	switch {
	case describer != nil:
		p = describer.Policy(part.Key)
	case res.Source == hybridlimit.SourceUnknown:
		return nil
	default: // only the quota is known: Period 0 gives no window
		p = hybridlimit.Policy{Name: res.Policy, Limit: hybridlimit.Limit{Rate: res.Limit}}
	}
	if part.GivenOK {
		p.Limit = part.Given
	}
	have := s.written.Load()
	if have != nil {
		for _, it := range *have {
			if it.policy == p {
				return it
			}
		}
	}
	item, ok := ratelimitheader.NewItem(cmp.Or(s.limit.Name, p.Name, DefaultName), p.Limit)
	it := &Item{Item: item, policy: p, secret: p.Shadow || !ok}
	if have == nil || len(*have) < maxItems {
		var more []*Item
		if have != nil {
			more = append(more, *have...)
		}
		more = append(more, it)
		s.written.CompareAndSwap(have, &more) // a lost race only costs another formatting
	}
	return it
}

// Left appends the part's item of RateLimit to b: the units left, and how long they have to last.
func (it *Item) Left(b []byte, p *Part) []byte {
	return it.Append(b, max(0, p.Res.Remaining), it.Effective(p.Res.Remaining, p.Res.ResetAfter))
}
