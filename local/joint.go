package local

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// Joins reports whether AllowAll can ask the other limiter together with this one.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil
}

// AllowJoint implements [hybridlimit.AllowAll]: a call under several limits (per user, per address, for all), all or
// nothing. It holds the locks of all keys. It checks all limits, and takes units only if all admit. If one limit
// denies, nothing is taken from the others. Concurrent calls see no state in between.
//
// If limits deny, the result is that of the one with the longest RetryAfter. If all admit, it is that of the one with
// the fewest units remaining. Policy names that limit, so give the limiters names. Delay is the longest of all. Asks
// for one key of one limiter add up.
//
// AllowJoint writes each limit's answer into its ask. It fails as AllowN does. The error is ErrInvalid if there are no
// asks, or if a Limiter is nil (as an interface, or as a pointer in it) or does not join. With an error nothing is
// taken.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	for i := range asks {
		asks[i].Result, asks[i].Taken = hybridlimit.Result{}, hybridlimit.Taken{}
	}
	parts, err := partsOf(ctx, asks)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if err := lockAll(parts); err != nil {
		return hybridlimit.Result{}, err
	}
	defer unlockAll(parts)
	var res hybridlimit.Result
	denied := false
	for _, p := range parts {
		one := p.try()
		if one.Allowed {
			continue
		}
		denied, p.res = true, one
		if res.Source == hybridlimit.SourceUnknown || one.RetryAfter > res.RetryAfter {
			res = one
		}
	}
	if !denied {
		var delay time.Duration
		for _, p := range parts {
			p.res = p.take()
			delay = max(delay, p.res.Delay)
			// A limit that counts nothing has the most units left.
			if res.Source == hybridlimit.SourceUnknown || p.res.Remaining < res.Remaining {
				res = p.res
			}
		}
		res.Delay = delay
	}
	for i, a := range asks { // asks for one key share the answer, but each has its own units
		p := parts[slices.IndexFunc(parts, func(p *jointKey) bool { return p.is(a) })]
		if asks[i].Result, asks[i].Taken = p.res, p.took; p.res.Allowed {
			asks[i].Result.Granted = a.N
		}
	}
	return res, nil
}

// jointKey is one key of a call under several limits.
type jointKey struct {
	place

	l       *Limiter
	n       int64
	index   int           // of its shard
	called  time.Duration // shard time by the caller's clock
	request string
	beside  int64    // units of the key that other classes with a larger floor take in this call
	q       question // to LimitFor

	res  hybridlimit.Result // of the take, or of the look that denied
	took hybridlimit.Taken
}

// is reports whether an ask is for the part's key of its limiter.
func (p *jointKey) is(a hybridlimit.Ask) bool { return p.l == a.Limiter && p.key == a.Key }

// partsOf checks the asks and sorts them in the order of the locks.
func partsOf(ctx context.Context, asks []hybridlimit.Ask) ([]*jointKey, error) {
	if len(asks) == 0 {
		return nil, fmt.Errorf("local: AllowAll: %w: asks is empty, but needs at least one ask", hybridlimit.ErrInvalid)
	}
	var parts []*jointKey
	for i, a := range asks {
		l, err := limiterOf(i, a)
		if err != nil {
			return nil, err
		}
		if err := adapter.CheckRequest(a.Key, a.N, l.cfg.MaxKeyBytes); err != nil {
			return nil, fmt.Errorf("local: AllowAll: asks[%d]: %w", i, err)
		}
		same := slices.IndexFunc(parts, func(p *jointKey) bool { return p.is(a) })
		if same < 0 {
			p := &jointKey{l: l, n: a.N, index: l.index(a.Key), called: l.now(), request: l.request(ctx)}
			p.shard, p.key = &l.shards[p.index], a.Key
			parts = append(parts, p)
			continue
		}
		if parts[same].n += a.N; parts[same].n < 0 {
			return nil, fmt.Errorf("local: AllowAll: asks[%d]: %w: with these %d units, the sum for the key exceeds the range of int64",
				i, hybridlimit.ErrCost, a.N)
		}
	}
	for _, p := range parts {
		for _, q := range parts {
			if q.l.core == p.l.core && q.key == p.key && q.l.class.Floor > p.l.class.Floor {
				if p.beside += q.n; p.beside < 0 {
					return nil, fmt.Errorf("local: AllowAll: %w: the sum of the units for one key exceeds the range of int64", hybridlimit.ErrCost)
				}
			}
		}
	}
	slices.SortFunc(parts, func(p, q *jointKey) int {
		return cmp.Or(cmp.Compare(p.l.order, q.l.order), cmp.Compare(p.index, q.index))
	})
	return parts, nil
}

// limiterOf returns the limiter of the ask with an index, if it joins.
func limiterOf(i int, a hybridlimit.Ask) (*Limiter, error) {
	l, own := a.Limiter.(*Limiter)
	if own && l != nil {
		return l, nil
	}
	var bad adapter.Violations
	field := fmt.Sprintf("asks[%d].Limiter", i)
	if own || a.Limiter == nil {
		bad.Add(field, nil, "must not be nil")
	} else {
		bad.Add(field, fmt.Sprintf("%T", a.Limiter), "must be a limiter of package local")
	}
	return nil, bad.Err("local: AllowAll")
}

// lockAll locks the shards of all parts, unless there is an error. LimitFor is called under no lock, so a question
// costs another round.
func lockAll(parts []*jointKey) error {
	for {
		eachLock(parts, (*sync.Mutex).Lock)
		var unknown []*jointKey
		for _, p := range parts {
			if p.closed {
				unlockAll(parts)
				return errClosed
			}
			p.find()
			if p.q.asked && !p.q.used {
				if err := p.l.answer(&p.place, p.called, &p.q); err != nil {
					unlockAll(parts)
					return err
				}
			}
			if !p.q.asked && p.l.due(&p.place, p.called, nil) {
				p.q = p.l.question(&p.place, p.called)
				unknown = append(unknown, p)
			}
			if e := p.entry; e != nil {
				p.own, p.asks = e.own, e.asks // it may have to make room for another part
			}
		}
		if len(unknown) == 0 {
			return nil
		}
		unlockAll(parts)
		for _, p := range unknown {
			p.l.ask(&p.q, p.key)
		}
	}
}

func unlockAll(parts []*jointKey) { eachLock(parts, (*sync.Mutex).Unlock) }

// eachLock calls f for the lock of each shard of the parts.
func eachLock(parts []*jointKey, f func(*sync.Mutex)) {
	for i, p := range parts {
		if i == 0 || p.shard != parts[i-1].shard {
			f(&p.mu)
		}
	}
}

// try returns the answer for the part's units, and takes none. It counts as a use of a key that is held, so that a key
// that is always denied is not dropped.
func (p *jointKey) try() hybridlimit.Result {
	p.find() // another part may have evicted it since
	p.l.enter(&p.place, p.called, nil)
	if left := p.pausedFor(); left > 0 {
		return p.l.pausedResult(&p.place, left)
	}
	if static(p.plan.limit.Algorithm) {
		return p.l.static(p.plan, p.n)
	}
	if p.beside > p.plan.burst || p.n > p.plan.burst-p.floor-p.beside {
		return p.l.never(&p.place, p.glance().look(p.at, 0))
	}
	if p.entry != nil {
		p.use(p.request)
	}
	seen := p.glance().look(p.at, p.n+p.floor+p.beside)
	res := p.l.result(&p.place, seen)
	res.Allowed = seen.retry == 0
	return res
}

// take takes the part's units after try has found them.
func (p *jointKey) take() hybridlimit.Result {
	if static(p.plan.limit.Algorithm) {
		return p.l.static(p.plan, p.n)
	}
	p.find()
	delay, ok, seen := p.use(p.request).decide(p.at, p.n, 0)
	res := p.l.result(&p.place, seen)
	if ok { // always: try and take agree, and a key that was dropped in between is full
		res.Allowed, res.Granted, res.Delay = true, p.n, after(delay, p.behind)
		p.took = p.taken()
	}
	return res
}
