package httplimit

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
)

// defaultName is the name of a policy without a name.
const defaultName = "default"

// limit is a Limit of a middleware.
type limit struct {
	limiter   hybridlimit.Limiter
	describer hybridlimit.Describer // nil: the limiter does not describe its policy
	key       KeyFunc
	required  bool
	missing   error // the failure of a request without a key, if required
	cost      func(*http.Request) int64
	of        func(*http.Request) (hybridlimit.Limit, bool)
	limited   limited // the limiter, if of is set
	name      string  // overrides the limiter's name if not empty
	bucket    string

	written atomic.Pointer[[]*policyItem] // a cache of at most maxItems
}

func newLimit(i int, l Limit) *limit {
	made := &limit{limiter: l.Limiter, key: l.Key, required: l.Required, cost: l.Cost, name: l.Name, bucket: l.Bucket}
	if l.Required {
		made.missing = missingKey(i, l)
	}
	made.describer, _ = l.Limiter.(hybridlimit.Describer)
	if l.Of != nil {
		made.of, made.limited = l.Of, l.Limiter.(limited)
	}
	return made
}

// limited is a limiter that takes limits with the calls.
type limited interface {
	AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error)
}

// policyItem is an item of RateLimit-Policy, with the policy that it describes.
type policyItem struct {
	policy hybridlimit.Policy
	name   string
	quota  int64
	window int64  // seconds; 0: w is left out
	text   string // the item as a field value
	secret bool   // not published
}

// maxItems bounds the cached items of a limit. With LimitFor there is one per tier.
// Further items are formatted for each request.
const maxItems = 16

// item returns the item for a key, from the cache if possible. Without a describer
// it uses the Result, and returns nil if that has no figures. given is the limit that
// came with the request, or nil.
func (l *limit) item(key string, res *hybridlimit.Result, given *hybridlimit.Limit) *policyItem {
	var p hybridlimit.Policy
	switch {
	case l.describer != nil:
		p = l.describer.Policy(key)
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
	it := newPolicyItem(p, cmp.Or(l.name, p.Name, defaultName))
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
