package global

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// joint is one limit's part of a call under several limits: N units of a key.
type joint struct {
	Limiter *Limiter
	Key     string
	N       int64
}

// allowJoint decides asks. It writes each limit's answer into each.
func allowJoint(ctx context.Context, asks []joint, each []hybridlimit.Ask) (hybridlimit.Result, error) {
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
	said := takeAll(ctx, bounded, parts)
	var taken [][]*part
	denied := -1 // index of the denial with the longest RetryAfter
	var errs error
	for i, s := range said {
		errs = errors.Join(errs, s.err)
		switch {
		case !s.res.Allowed && (denied < 0 || s.res.RetryAfter > said[denied].res.RetryAfter):
			denied = i
		case s.res.Allowed && s.err == nil:
			taken = append(taken, s.group)
		case s.res.Allowed:
			res = s.res // of a group whose limits all fail open
		}
	}
	switch {
	case denied >= 0:
		res = said[denied].res
		return res, errors.Join(errs, giveBack(ctx, timeout, taken))
	case errs != nil:
		return res, errs
	}
	res = narrowest(parts)
	return res, nil
}

// answer is what Redis said to a message.
type answer struct {
	group []*part // that it asked for
	res   hybridlimit.Result
	err   error
}

// takeAll asks Redis for the units of all parts, with one message if their keys may share one. Otherwise there is one
// for each tag, all at the same time.
func takeAll(ctx, bounded context.Context, parts []*part) []answer {
	r := parts[0].Limiter.runner
	if r.Together() {
		if res, err := take(ctx, bounded, parts); !r.Apart(err) {
			return []answer{{parts, res, err}}
		}
	}
	said := []answer{}
	for group := range byTag(parts) {
		said = append(said, answer{group: group})
	}
	var wg sync.WaitGroup
	for i := range said[1:] {
		s := &said[i+1]
		wg.Go(func() { s.res, s.err = take(ctx, bounded, s.group) })
	}
	said[0].res, said[0].err = take(ctx, bounded, said[0].group)
	wg.Wait()
	return said
}

// tellNever fills in Remaining and ResetAfter for each limit whose burst is below the cost. It asks Redis for them.
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

// tellEach writes the answer of its limit into every ask. Asks for one key share the answer, but each has its own
// units. A denied call has taken nothing, so its asks get only the denials.
func tellEach(each []hybridlimit.Ask, asks []joint, parts []*part, res *hybridlimit.Result) {
	for _, p := range parts {
		for _, i := range p.asks {
			if each[i].Result = p.res; p.back.Refund > 0 {
				each[i].Taken = hybridlimit.NewTaken((*giver)(p.Limiter), p.back.RefundAt, p.terms.Window.Period, true)
			}
		}
	}
	for i := range each {
		switch one := &each[i].Result; {
		case res.Source == hybridlimit.SourceUnknown || one.Allowed != res.Allowed || !one.Allowed && one.RetryAfter == 0:
			*one, each[i].Taken = hybridlimit.Result{}, hybridlimit.Taken{}
		case one.Allowed:
			one.Granted = asks[i].N
		}
	}
}

// part is one key of a call under several limits.
type part struct {
	joint
	terms *terms
	tag   int
	name  string // of the key in Redis
	res   hybridlimit.Result
	back  algo.Op // gives the taken units back
	asks  []int   // indices of the asks for this key
}

// partsOf checks the asks and sorts them by tag. res is the answer if Redis need not be asked: the answer of a limit
// that denies for ever, or, without parts, of a limit that admits everything.
func partsOf(asks []joint, each []hybridlimit.Ask) (parts []*part, res hybridlimit.Result, err error) {
	if len(asks) == 0 {
		return nil, res, fmt.Errorf("global: AllowAll: %w: asks is empty, but needs at least one ask", hybridlimit.ErrInvalid)
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
			each[i].Result = one
			continue
		}
		tag, name := a.Limiter.place(a.Key)
		same := slices.IndexFunc(parts, func(p *part) bool { return p.name == name })
		if same < 0 {
			same = len(parts)
			parts = append(parts, &part{joint: joint{Limiter: a.Limiter, Key: a.Key}, terms: t, tag: tag, name: name})
		}
		p := parts[same]
		p.asks = append(p.asks, i)
		if p.Limiter != a.Limiter && p.terms.limit != t.limit {
			return nil, hybridlimit.Result{}, invalid(i, "Limiter", a.Limiter.cfg.Name,
				fmt.Sprintf("must have the same limit for key %q as the other limiter of that name: %v, not %v", a.Key, p.terms.limit, t.limit))
		}
		if p.N += a.N; p.N < 0 {
			return nil, hybridlimit.Result{}, fmt.Errorf("global: AllowAll: asks[%d]: %w: with these %d units, the sum for the key exceeds the range of int64", i, hybridlimit.ErrCost, a.N)
		}
	}
	if len(parts) > wire.MaxOps {
		return nil, hybridlimit.Result{}, fmt.Errorf("global: AllowAll: %w: %d limits in one call, but at most %d are possible", hybridlimit.ErrInvalid, len(parts), wire.MaxOps)
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

// equal returns a == b for values of any type. Values that cannot be compared differ.
func equal(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

func invalid(ask int, field string, value any, problem string) error {
	var bad adapter.Violations
	bad.Add(fmt.Sprintf("asks[%d].%s", ask, field), value, problem)
	return bad.Err("global: AllowAll")
}

// byTag yields the parts in groups of one tag. The parts must be sorted by tag.
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

// begin holds the runners open until done is called, so that taken units can be given back even if a limiter is closed
// meanwhile.
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

// take asks Redis for the units of a group, in one message. If Redis refuses the group, the result is that of the limit
// with the longest RetryAfter. If Redis gives no answer, the result is that of the first limit that fails closed, or
// else of the first limit.
func take(ctx, bounded context.Context, group []*part) (hybridlimit.Result, error) {
	ops := make([]wire.Op, len(group))
	for i, p := range group {
		ops[i] = wire.Op{Key: p.name, Limit: p.terms.limit, Op: algo.Op{Asks: []int64{p.N}, Since: p.terms.since()}}
		if p.terms.Kind == algo.KindLog {
			ops[i].ID = hybridlimit.RequestID(ctx)
		}
	}
	l, reply := group[0].Limiter, wire.Reply{}
	err := l.guarded(ctx, group[0].tag, func() (err error) {
		reply, err = l.runner.All(bounded, ops)
		return err
	})
	if err != nil {
		closed := slices.IndexFunc(group, func(p *part) bool { return !p.Limiter.cfg.FailOpen })
		cause := err
		for i, p := range group {
			if closed < 0 || i == closed { // a limit that fails open has no answer if another one denies
				p.res, err = p.Limiter.unavailable(ctx, p.Limiter.blank(p.terms), p.N, cause)
			}
		}
		return group[max(0, closed)].res, err
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

// narrowest returns the result of the limit with the fewest units remaining, with the longest Delay of all.
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

// NotReturnedError lists units that a denied or failed hybridlimit.AllowAll had taken, and that may still be taken.
// Redis did not answer the message that gives them back, so Redis may or may not have applied it. If it did not, the
// units come back as the limits refill. A Refund of the units risks that they are given back twice.
type NotReturnedError struct {
	Asks []hybridlimit.Ask // the taken units; Result is not set
	Err  error             // the cause; wraps hybridlimit.ErrUnavailable
}

// Error returns the limiters, the keys and the units.
func (e *NotReturnedError) Error() string {
	var b strings.Builder
	for i, a := range e.Asks {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d units of %q", a.N, a.Key)
		if l, ok := a.Limiter.(adapter.Describer); ok {
			fmt.Fprintf(&b, " (%s)", l.Name())
		}
	}
	return fmt.Sprintf("global: AllowAll: not given back: %s: %v", &b, e.Err)
}

// Unwrap returns the cause.
func (e *NotReturnedError) Unwrap() error { return e.Err }

// giveBack gives the units of all groups back, with one message for each group, concurrently.
func giveBack(ctx context.Context, timeout time.Duration, groups [][]*part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	causes := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, group := range groups {
		wg.Go(func() {
			ops := make([]wire.Op, len(group))
			for i, p := range group {
				ops[i] = wire.Op{Key: p.name, Limit: p.terms.limit, Op: p.back}
			}
			causes[i] = group[0].Limiter.runner.BatchWithin(ctx, ops)
		})
	}
	wg.Wait()
	var left NotReturnedError
	for i, err := range causes {
		if err == nil {
			continue
		}
		left.Err = errors.Join(left.Err, err)
		for _, p := range groups[i] {
			left.Asks = append(left.Asks, hybridlimit.Ask{Limiter: p.Limiter, Key: p.Key, N: p.N})
		}
	}
	if left.Err == nil {
		return nil
	}
	left.Err = fmt.Errorf("%w: %w", hybridlimit.ErrUnavailable, left.Err)
	return &left
}
