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

// made counts limiters: their order is that in which AllowAll takes locks.
var made atomic.Uint64

// joint is one limit's part of a call under several: so many units of a key.
type joint struct {
	Limiter *Limiter
	Key     string
	N       int64
}

// allowJointAt decides asks at a time, and writes each limit's answer into each.
func allowJointAt(ctx context.Context, now time.Time, asks []joint, each []hybridlimit.Ask) (hybridlimit.Result, error) {
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
		one := p.look(now)
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

// tellEach writes the answer of its limit into every ask. Asks for one key share an
// answer, with their own units.
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
	shard   *shard
	request string
	asked   bool  // what LimitFor says is known
	own     *plan // that, or nil

	plan       *plan
	at, behind time.Duration

	res hybridlimit.Result // of the take, or of the look that denied
}

// partsOf checks the asks and sorts them in the order of the locks.
func partsOf(ctx context.Context, asks []joint) ([]*part, error) {
	if len(asks) == 0 {
		return nil, fmt.Errorf("local: AllowAll: %w: no limit is asked", hybridlimit.ErrInvalid)
	}
	var parts []*part
	for i, a := range asks {
		if err := hybridlimit.CheckRequest(a.Key, a.N, a.Limiter.cfg.MaxKeyBytes); err != nil {
			return nil, fmt.Errorf("local: AllowAll: asks[%d]: %w", i, err)
		}
		same := slices.IndexFunc(parts, func(p *part) bool { return p.Limiter == a.Limiter && p.Key == a.Key })
		if same < 0 {
			index := a.Limiter.indexOf(a.Key)
			parts = append(parts, &part{joint: a, index: index, shard: &a.Limiter.shards[index], request: a.Limiter.request(ctx)})
			continue
		}
		if parts[same].N += a.N; parts[same].N < 0 {
			return nil, fmt.Errorf("local: AllowAll: asks[%d]: %w: %d units of one key and more", i, hybridlimit.ErrCost, a.N)
		}
	}
	slices.SortFunc(parts, func(p, q *part) int {
		return cmp.Or(cmp.Compare(p.Limiter.order, q.Limiter.order), cmp.Compare(p.index, q.index))
	})
	return parts, nil
}

// lockAll locks the shards of all parts, unless there is an error. LimitFor is
// called under no lock: a key that turns out not to be held costs another round.
func lockAll(parts []*part) error {
	for {
		for i, p := range parts {
			if i == 0 || p.shard != parts[i-1].shard {
				p.shard.mu.Lock()
			}
		}
		var unknown []*part
		for _, p := range parts {
			if p.shard.keys == nil {
				unlockAll(parts)
				return errClosed
			}
			if p.Limiter.cfg.LimitFor == nil {
				continue
			}
			if e, ok := p.shard.keys.Peek(p.Key); ok {
				p.own = e.own // it may have to make room for another part
			} else if !p.asked {
				p.plan = p.shard.base
				unknown = append(unknown, p)
			}
		}
		if len(unknown) == 0 {
			return nil
		}
		unlockAll(parts)
		for _, p := range unknown {
			own, err := p.Limiter.ask(p.Key, p.plan.limit)
			if err != nil {
				return err
			}
			p.own, p.asked = own, true
		}
	}
}

func unlockAll(parts []*part) {
	for i, p := range parts {
		if i == 0 || p.shard != parts[i-1].shard {
			p.shard.mu.Unlock()
		}
	}
}

// look reports whether the part's units are there, and takes none. It counts as a use
// of a key that is held, so that a key that is always denied is not dropped.
func (p *part) look(now time.Time) hybridlimit.Result {
	l, s := p.Limiter, p.shard
	p.at, p.behind = s.tick(now.Sub(l.start))
	p.plan = s.limitOf(l, p.Key, nil, p.own)
	if static(p.plan.limit.Algorithm) {
		return l.static(p.plan, p.N)
	}
	if p.N > p.plan.burst {
		return l.never(s.glance(p.Key, p.plan, p.own).look(p.at, 0), p.plan, p.behind)
	}
	e := newEntry(p.plan, p.own)
	if s.keys.Contains(p.Key) {
		e = s.find(p.Key, p.plan, p.own)
		e.use(p.plan, p.at)
	}
	seen := e.look(p.at, p.N)
	res := l.result(seen, p.plan, p.behind)
	res.Allowed = seen.retry == 0
	return res
}

// take takes the part's units after look has found them.
func (p *part) take() hybridlimit.Result {
	l := p.Limiter
	if static(p.plan.limit.Algorithm) {
		return l.static(p.plan, p.N)
	}
	e := p.shard.find(p.Key, p.plan, p.own)
	e.use(p.plan, p.at)
	e.by(p.request)
	delay, ok := e.state.take(p.plan, p.at, p.N)
	res := l.result(e.look(p.at, 0), p.plan, p.behind)
	if ok { // it is: look and take agree, and a key that was dropped since is full
		res.Allowed, res.Granted, res.Delay = true, p.N, after(delay, p.behind)
	}
	return res
}
