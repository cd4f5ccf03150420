package httplimit

import (
	"cmp"
	"net/http"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// limit is a Limit of a middleware.
type limit struct {
	gate.Limit
	describer hybridlimit.Describer // nil: the limiter does not describe its policy
	key       KeyFunc
	required  bool
	missing   error // the failure of a request without a key, if required
	cost      func(*http.Request) int64
	of        func(*http.Request) (hybridlimit.Limit, bool)
	bucket    string

	written atomic.Pointer[[]*policyItem] // a cache of at most maxItems
}

// newLimit returns the limit for limits[i], which is l. shared is its part that does not depend on HTTP.
func newLimit(i int, l Limit, shared gate.Limit) *limit {
	made := &limit{Limit: shared, key: l.Key, required: l.Required, cost: l.Cost, of: l.Of, bucket: l.Bucket}
	if l.Required {
		made.missing = shared.Missing(i, ErrNoKey)
	}
	made.describer, _ = l.Limiter.(hybridlimit.Describer)
	return made
}

// policyItem is an item of RateLimit-Policy, with the policy that it describes.
type policyItem struct {
	ratelimitheader.Item
	policy hybridlimit.Policy
	secret bool // not published
}

// maxItems bounds the cached items of a limit. With LimitFor there is one per tier. Further items are formatted for
// each request.
const maxItems = 16

// item returns the item for a part, from the cache if possible. Without a describer it uses the Result, and returns nil
// if that has no figures. given is the limit that came with the request, or nil.
func (l *limit) item(part *gate.Part, given *hybridlimit.Limit) *policyItem {
	var p hybridlimit.Policy
	describer, res := l.describer, &part.Res
	if of, ok := part.View.(hybridlimit.Describer); ok {
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
	if given != nil {
		p.Limit = *given
	}
	have := l.written.Load()
	if have != nil {
		for _, it := range *have {
			if it.policy == p {
				return it
			}
		}
	}
	it := newPolicyItem(p, cmp.Or(l.Name, p.Name, gate.DefaultName))
	if have == nil || len(*have) < maxItems {
		var more []*policyItem
		if have != nil {
			more = append(more, *have...)
		}
		more = append(more, it)
		l.written.CompareAndSwap(have, &more) // a lost race only costs another formatting
	}
	return it
}
