package httplimit

import (
	"cmp"
	"net/http"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
)

// defaultName is a policy's that nobody has named.
const defaultName = "default"

// limit is a Limit in use.
type limit struct {
	limiter   hybridlimit.Limiter
	describer hybridlimit.Describer // nil: the limiter does not tell what it enforces
	key       KeyFunc
	required  bool
	missing   error // of a request without its key, where it is required
	cost      func(*http.Request) int64
	name      string // overrides the limiter's
	bucket    string

	written atomic.Pointer[[]*policyItem]
}

func newLimit(i int, l Limit) *limit {
	made := &limit{limiter: l.Limiter, key: l.Key, required: l.Required, cost: l.Cost, name: l.Name, bucket: l.Bucket}
	if l.Required {
		made.missing = missingKey(i, l)
	}
	made.describer, _ = l.Limiter.(hybridlimit.Describer)
	return made
}

// policyItem is an item of RateLimit-Policy, and what it was written from.
type policyItem struct {
	policy hybridlimit.Policy
	name   string
	quota  int64
	window int64  // s; 0: none that can be expressed
	text   string // the item alone, as a field's value
	secret bool   // it is not published
}

// maxItems bounds the items that are kept: with LimitFor there is one for each
// tier. More are written anew for each request.
const maxItems = 16

// item finds or writes the item of a part. It wants the Result where the limiter
// does not describe itself; nil: there is nothing to be told.
func (l *limit) item(key string, res *hybridlimit.Result) *policyItem {
	var p hybridlimit.Policy
	switch {
	case l.describer != nil:
		p = l.describer.Policy(key)
	case res.Source == hybridlimit.SourceUnknown:
		return nil
	default: // all that is known is the quota: Period 0 has no window
		p = hybridlimit.Policy{Name: res.Policy, Limit: hybridlimit.Limit{Rate: res.Limit}}
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
		l.written.CompareAndSwap(have, &more) // who loses writes it again next time
	}
	return it
}
