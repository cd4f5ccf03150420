package local

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// made counts limiters. AllowAll takes locks in this order.
var made atomic.Uint64

// joint is the part of one limit in a call under several limits: N units of a key.
type joint struct {
	Limiter *Limiter
	Key     string
	N       int64
}

// allowJointAt decides asks at now. It writes the answer of each limit into each.
func allowJointAt(ctx context.Context, now time.Time, asks []joint, each []hybridlimit.Ask) (hybridlimit.Result, error) {
	parts, err := partsOf(ctx, asks)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if err := lockAll(parts, now); err != nil {
		return hybridlimit.Result{}, err
	}
	defer unlockAll(parts)
	var res hybridlimit.Result
	denied := false
	for _, p := range parts {
		one := p.try(now)
		if one.Allowed {
			continue
		}
		denied, p.res = true, one
		if res.Source == hybridlimit.SourceUnknown || one.RetryAfter > res.RetryAfter {
			res = one
		}
	}
	if denied {
		tellEach(each, asks, parts)
		return res, nil
	}
	var delay time.Duration
	for _, p := range parts {
		one := p.take()
		p.res, delay = one, max(delay, one.Delay)
		// A limit that counts nothing has the most units left.
		if res.Source == hybridlimit.SourceUnknown || one.Remaining < res.Remaining {
			res = one
		}
	}
	res.Delay = delay
	tellEach(each, asks, parts)
	return res, nil
}

// tellEach writes the answer of its limit into every ask. Asks for one key share the answer, but each has its own
// units.
func tellEach(each []hybridlimit.Ask, asks []joint, parts []*part) {
	for i := range each {
		for _, p := range parts {
			if p.Limiter == asks[i].Limiter && p.Key == asks[i].Key {
				if each[i].Result = p.res; p.res.Allowed {
					each[i].Result.Granted = asks[i].N
				}
			}
		}
	}
}

// part is one key of a call under several limits.
type part struct {
	joint
	index   int // of its shard
	place   place
	request string
	beside  int64    // units of the key that other classes with a larger floor take in this call
	asked   bool     // LimitFor was called for the key
	q       question // the answer, until it is used

	plan       *plan
	at, behind time.Duration

	res hybridlimit.Result // of the take, or of the look that denied
}

// partsOf checks the asks and sorts them in the order of the locks.
func partsOf(ctx context.Context, asks []joint) ([]*part, error) {
	if len(asks) == 0 {
		return nil, fmt.Errorf("local: AllowAll: %w: asks is empty, but needs at least one ask", hybridlimit.ErrInvalid)
	}
	var parts []*part
	for i, a := range asks {
		if err := hybridlimit.CheckRequest(a.Key, a.N, a.Limiter.cfg.MaxKeyBytes); err != nil {
			return nil, fmt.Errorf("local: AllowAll: asks[%d]: %w", i, err)
		}
		same := slices.IndexFunc(parts, func(p *part) bool { return p.Limiter == a.Limiter && p.Key == a.Key })
		if same < 0 {
			i := a.Limiter.index(a.Key)
			at := place{shard: &a.Limiter.shards[i], key: a.Key}
			parts = append(parts, &part{joint: a, index: i, place: at, request: a.Limiter.request(ctx)})
			continue
		}
		if parts[same].N += a.N; parts[same].N < 0 {
			return nil, fmt.Errorf("local: AllowAll: asks[%d]: %w: with these %d units, the sum for the key exceeds the range of int64", i, hybridlimit.ErrCost, a.N)
		}
	}
	for _, p := range parts {
		for _, q := range parts {
			if q.Limiter.core == p.Limiter.core && q.Key == p.Key && q.Limiter.class.Floor > p.Limiter.class.Floor {
				if p.beside += q.N; p.beside < 0 {
					return nil, fmt.Errorf("local: AllowAll: %w: the sum of the units for one key exceeds the range of int64", hybridlimit.ErrCost)
				}
			}
		}
	}
	slices.SortFunc(parts, func(p, q *part) int {
		return cmp.Or(cmp.Compare(p.Limiter.order, q.Limiter.order), cmp.Compare(p.index, q.index))
	})
	return parts, nil
}

// lockAll locks the shards of all parts, unless there is an error. LimitFor is called under no lock, so a question
// costs another round.
func lockAll(parts []*part, now time.Time) error {
	for {
		for i, p := range parts {
			if i == 0 || p.place.shard != parts[i-1].place.shard {
				p.place.mu.Lock()
			}
		}
		var unknown []*part
		for _, p := range parts {
			if p.place.closed {
				unlockAll(parts)
				return errClosed
			}
			if p.Limiter.cfg.LimitFor == nil {
				continue
			}
			l, at := p.Limiter, now.Sub(p.Limiter.start)
			p.look()
			if p.q.done {
				if err := l.answer(&p.place, at, &p.q); err != nil {
					unlockAll(parts)
					return err
				}
			}
			if !p.asked && l.due(&p.place, at, true) {
				p.q = l.question(&p.place, at)
				unknown = append(unknown, p)
			}
			if e := p.place.entry; e != nil {
				p.place.own, p.place.asks = e.own, e.asks // it may have to make room for another part
			}
		}
		if len(unknown) == 0 {
			return nil
		}
		unlockAll(parts)
		for _, p := range unknown {
			p.q.ask(p.Limiter, p.Key)
			p.asked = true
		}
	}
}

func unlockAll(parts []*part) {
	for i, p := range parts {
		if i == 0 || p.place.shard != parts[i-1].place.shard {
			p.place.mu.Unlock()
		}
	}
}

// look finds the entry of the part's key, which another part may have evicted since.
func (p *part) look() { p.place.entry, _ = p.place.keys.Get(p.Key) }

// try returns the answer for the part's units, and takes none. It counts as a use of a key that is held, so that a key
// that is always denied is not dropped.
func (p *part) try(now time.Time) hybridlimit.Result {
	l, at := p.Limiter, &p.place
	p.look()
	p.at, p.behind = at.tick(now.Sub(l.start))
	p.plan = at.limit(nil)
	if static(p.plan.limit.Algorithm) {
		return l.static(p.plan, p.N)
	}
	floor := l.floor(p.plan)
	if p.beside > p.plan.burst || p.N > p.plan.burst-floor-p.beside {
		return l.never(at.glance(p.plan).look(p.at, 0), p.plan, p.behind)
	}
	e := at.entry
	if e != nil {
		at.find(p.plan)
		e.use(p.plan, p.at)
	} else {
		e = newEntry(p.plan, at.own)
	}
	seen := e.look(p.at, p.N+floor+p.beside)
	res := l.result(seen, p.plan, p.behind)
	res.Allowed = seen.retry == 0
	return res
}

// take takes the part's units after try has found them.
func (p *part) take() hybridlimit.Result {
	l := p.Limiter
	if static(p.plan.limit.Algorithm) {
		return l.static(p.plan, p.N)
	}
	p.look()
	e := p.place.find(p.plan)
	e.use(p.plan, p.at)
	e.by(p.request)
	delay, ok := e.state.take(p.plan, p.at, p.N)
	res := l.result(e.look(p.at, 0), p.plan, p.behind)
	if ok { // always: try and take agree, and a key that was dropped in between is full
		res.Allowed, res.Granted, res.Delay = true, p.N, after(delay, p.behind)
	}
	return res
}
