package global

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Ask is one limit's part of a call under several: so many units of a key.
type Ask struct {
	Limiter *Limiter // all of one Redis client
	Key     string   // as for AllowN
	N       int64    // units
}

// AllowAll is a call under several limits (per user, per address, for all),
// all or nothing: when one denies, nothing is taken of the others.
//
// Keys that share a slot are one message, which Redis decides as a whole: when
// all have one tag, AllowAll is as exact as AllowN and costs as much. They have
// one when their limiters' Subject says the same of them, or with Tags of 1.
// Else there is a message for each tag, one after the other in the order of the
// tags, and what the former took is given back when a latter denies: one
// message more for each. Meanwhile, a round trip or two, others find those
// units taken, and may be denied for them; nobody is ever admitted for them. No
// two calls deny each other, since all take in one order. Windows and logs get
// back what they gave, in its window and as its entry; a bucket that was full
// again meanwhile keeps what has come back since.
//
// The result is that of the limit that denied with the longest RetryAfter (of
// one message: the limits of later ones are not asked then), or, when
// all admit, of the one with the fewest units remaining; Policy says which.
// Delay is the longest of all. Asks for one key of one limiter add up; limiters
// of one name that disagree on the limit of a key are refused.
//
// Messages are sent once, and have the shortest Timeout of the limiters
// together. Where one is not answered, its units may or may not have been taken,
// as with AllowN; of the others nothing is, and the error is ErrUnavailable. If
// FailOpen holds for all limiters of that message, the others are asked all the
// same and may deny; else they keep what they gave, and the Result beside the
// error admits. To give back has one Timeout more; what that did not do is a
// *NotReturnedError beside whatever else there is to say.
func AllowAll(ctx context.Context, asks ...Ask) (hybridlimit.Result, error) {
	return allowEach(ctx, asks, nil)
}

// allowEach writes each limit's answer into each, if there is one.
func allowEach(ctx context.Context, asks []Ask, each []hybridlimit.Ask) (hybridlimit.Result, error) {
	parts, res, err := partsOf(asks, each)
	defer func() { tellEach(each, asks, parts, &res) }()
	if err == nil && res.RetryAfter == hybridlimit.Never {
		res, err = tellNever(ctx, parts, res)
	}
	if err != nil || res.Source != hybridlimit.SourceUnknown && (!res.Allowed || len(parts) == 0) {
		return res, err
	}
	done, err := begin(parts)
	if err != nil {
		res = hybridlimit.Result{}
		return res, err
	}
	defer done()
	timeout := parts[0].Limiter.cfg.Timeout
	for _, p := range parts {
		timeout = min(timeout, p.Limiter.cfg.Timeout)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var unanswered error // of limits that fail open
	var taken [][]*part
	for group := range byTag(parts) {
		one, err := take(ctx, bounded, group)
		switch {
		case !one.Allowed:
			res = one
			return res, errors.Join(unanswered, err, giveBack(ctx, timeout, taken))
		case err != nil:
			res, unanswered = one, err
		default:
			taken = append(taken, group)
		}
	}
	if unanswered != nil {
		return res, unanswered
	}
	res = narrowest(parts)
	return res, nil
}

// tellNever asks what is left of the limits that a call can never have, so that
// their answers say it.
func tellNever(ctx context.Context, parts []*part, res hybridlimit.Result) (hybridlimit.Result, error) {
	for _, p := range parts {
		was := p.res
		if was.RetryAfter != hybridlimit.Never {
			continue
		}
		one, err := p.Limiter.never(ctx, p.Key, p.terms)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		if p.res = one; res == was {
			res = one
		}
	}
	return res, nil
}

// tellEach gives every ask the answer of its limit: asks for one key share it,
// but each has its own units. A call that was not admitted has taken nothing, so
// only denials are told then.
func tellEach(each []hybridlimit.Ask, asks []Ask, parts []*part, res *hybridlimit.Result) {
	for _, p := range parts {
		for _, i := range p.asks {
			each[i].Result = p.res
		}
	}
	for i := range each {
		switch one := &each[i].Result; {
		case res.Source == hybridlimit.SourceUnknown || one.Allowed != res.Allowed || !one.Allowed && one.RetryAfter == 0:
			*one = hybridlimit.Result{}
		case one.Allowed:
			one.Granted = asks[i].N
		}
	}
}

// part is one key of a call under several limits.
type part struct {
	Ask
	terms *terms
	tag   int
	name  string // of the key in Redis
	res   hybridlimit.Result
	back  algo.Op // gives back what it took
	asks  []int   // those that it is of, if each is to be told
}

// partsOf checks the asks and puts them into the order in which they are taken.
// res is the answer where Redis need not be asked: of a limit that denies for
// ever, or, if there is no part, of one that admits all.
func partsOf(asks []Ask, each []hybridlimit.Ask) (parts []*part, res hybridlimit.Result, err error) {
	if len(asks) == 0 {
		return nil, res, fmt.Errorf("global: AllowAll: %w: no limit is asked", hybridlimit.ErrInvalid)
	}
	if err := sameClient(asks); err != nil {
		return nil, res, err
	}
	for i, a := range asks {
		t, err := a.Limiter.of(a.Key, a.N)
		if err != nil {
			return nil, hybridlimit.Result{}, fmt.Errorf("global: AllowAll: asks[%d]: %w", i, err)
		}
		if t.static() {
			one := a.Limiter.fixed(t, a.N)
			if res.Source == hybridlimit.SourceUnknown || !one.Allowed {
				res = one
			}
			if each != nil {
				each[i].Result = one
			}
			continue
		}
		tag, name := a.Limiter.place(a.Key)
		same := slices.IndexFunc(parts, func(p *part) bool { return p.name == name })
		if same < 0 {
			same = len(parts)
			parts = append(parts, &part{Ask: Ask{Limiter: a.Limiter, Key: a.Key}, terms: t, tag: tag, name: name})
		}
		p := parts[same]
		if each != nil {
			p.asks = append(p.asks, i)
		}
		if p.Limiter != a.Limiter && p.terms.limit != t.limit {
			return nil, hybridlimit.Result{}, invalid(i, "Limiter", a.Limiter.cfg.Name,
				fmt.Sprintf("must have the limit of the other one of that name for key %q (%v), not %v", a.Key, p.terms.limit, t.limit))
		}
		if p.N += a.N; p.N < 0 {
			return nil, hybridlimit.Result{}, fmt.Errorf("global: AllowAll: asks[%d]: %w: %d units of one key and more", i, hybridlimit.ErrCost, a.N)
		}
	}
	if len(parts) > wire.MaxOps {
		return nil, hybridlimit.Result{}, fmt.Errorf("global: AllowAll: %w: %d limits, at most %d", hybridlimit.ErrInvalid, len(parts), wire.MaxOps)
	}
	for _, p := range parts {
		if blank := p.Limiter.blank(p.terms); p.N > blank.Limit {
			if p.res = never(blank); res.Source == hybridlimit.SourceUnknown || res.Allowed {
				res = p.res
			}
		}
	}
	slices.SortStableFunc(parts, func(p, q *part) int { return cmp.Compare(p.tag, q.tag) })
	return parts, res, nil
}

// sameClient refuses asks of no limiter, or of those that other Redis servers
// may stand behind.
func sameClient(asks []Ask) error {
	first := asks[0].Limiter
	for i, a := range asks {
		switch {
		case a.Limiter == nil:
			return invalid(i, "Limiter", nil, "must not be nil")
		case a.Limiter != first && !equal(a.Limiter.runner.Client(), first.runner.Client()):
			return invalid(i, "Limiter", a.Limiter.cfg.Name, fmt.Sprintf("must use the Redis client of asks[0].Limiter (%q)", first.cfg.Name))
		}
	}
	return nil
}

// equal is a == b for values of any type; those that cannot be compared differ.
func equal(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

func invalid(ask int, field string, value any, problem string) error {
	var bad hybridlimit.Violations
	bad.Add(fmt.Sprintf("asks[%d].%s", ask, field), value, problem)
	return bad.Err("global: AllowAll")
}

// byTag are the parts of one slot each.
func byTag(parts []*part) iter.Seq[[]*part] {
	return func(yield func([]*part) bool) {
		for len(parts) > 0 {
			n := 1
			for n < len(parts) && parts[n].tag == parts[0].tag {
				n++
			}
			if !yield(parts[:n]) {
				return
			}
			parts = parts[n:]
		}
	}
}

// begin holds the runners open until done: what was taken can be given back
// even if a limiter is closed meanwhile.
func begin(parts []*part) (done func(), err error) {
	var open []*runner.Runner
	done = func() {
		for _, r := range open {
			r.Done()
		}
	}
	for _, p := range parts {
		r := p.Limiter.runner
		if slices.Contains(open, r) {
			continue
		}
		if !r.Begin() {
			done()
			return nil, hybridlimit.ErrClosed
		}
		open = append(open, r)
	}
	return done, nil
}

// take asks for a group, in one message. If not all of it was granted the
// result is that of the limit that denied with the longest wait; with an error,
// of the one that decides what becomes of the call without Redis.
func take(ctx, bounded context.Context, group []*part) (hybridlimit.Result, error) {
	ops := make([]wire.Op, len(group))
	for i, p := range group {
		ops[i] = wire.Op{Key: p.name, Limit: p.terms.limit, Op: algo.Op{Asks: []int64{p.N}, Since: p.terms.since()}}
		if p.terms.Kind == algo.KindLog {
			ops[i].ID = hybridlimit.RequestID(ctx)
		}
	}
	reply, err := group[0].Limiter.runner.All(bounded, ops)
	if err != nil {
		p := group[max(0, slices.IndexFunc(group, func(p *part) bool { return !p.Limiter.cfg.FailOpen }))]
		p.res, err = p.Limiter.unavailable(ctx, p.Limiter.blank(p.terms), p.N, err)
		return p.res, err
	}
	worst := group[0]
	for i, p := range group {
		ans := reply.Answers[i]
		p.res = p.terms.fill(p.Limiter.blank(p.terms), ans)
		if reply.Refused {
			p.res.RetryAfter = micros(ans.Retry)
			if p.res.RetryAfter > worst.res.RetryAfter {
				worst = p
			}
			continue
		}
		p.res.Allowed, p.res.Granted, p.res.Delay = true, p.N, micros(ans.Delay)
		p.back = p.terms.Back(ans, reply.Now)
	}
	return worst.res, nil
}

// narrowest is the result of the limit with the fewest units remaining.
func narrowest(parts []*part) hybridlimit.Result {
	res, delay := parts[0].res, time.Duration(0)
	for _, p := range parts {
		if delay = max(delay, p.res.Delay); p.res.Remaining < res.Remaining {
			res = p.res
		}
	}
	res.Delay = delay
	return res
}
