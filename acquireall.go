package hybridlimit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
)

// claim is the permits that a call needs of one key of an Acquirer.
type claim struct {
	limiter Acquirer
	name    string // of the limiter
	key     string
	n       int64 // below 1: an ask has an invalid cost
	asks    []int // indexes; the first one gets the permit
}

// acquireAll is AllowAll with at least one Acquirer.
func acquireAll(ctx context.Context, asks []Ask) (res Result, err error) {
	for i := range asks {
		asks[i].Permit, asks[i].Taken, asks[i].Result = Permit{}, Taken{}, Result{}
	}
	claims, rates, err := parted(asks)
	if err != nil {
		return Result{}, err
	}
	admitted := false
	defer func() { // also after a panic of a limiter
		if !admitted {
			withdraw(asks, claims)
		}
	}()
	for i, c := range claims {
		permit, one, err := c.limiter.AcquireN(ctx, c.key, c.n)
		if err != nil {
			return Result{}, err
		}
		asks[c.asks[0]].Permit = permit
		for _, at := range c.asks {
			asks[at].Result = one
		}
		if !one.Allowed {
			return one, nil
		}
		res = admittedBy(res, one, i == 0)
	}
	if len(rates) > 0 {
		one, err := allowRates(ctx, asks, rates)
		if err != nil || !one.Allowed {
			return one, err
		}
		res = admittedBy(res, one, false)
	}
	admitted = true
	return res, nil
}

// parted returns the claims in the order in which they are acquired, and the indexes of the other asks.
func parted(asks []Ask) (claims []claim, rates []int, err error) {
	var bad violations
	for i, a := range asks {
		field := fmt.Sprintf("asks[%d].Limiter", i)
		if a.Limiter == nil || isNil(a.Limiter) {
			bad.add(field, nil, "must not be nil")
			continue
		}
		acquirer, ok := a.Limiter.(Acquirer)
		if !ok {
			if rates = append(rates, i); !joins(asks[rates[0]].Limiter, a.Limiter) {
				bad.add(field, fmt.Sprintf("%T", a.Limiter), "must be an Acquirer, or a limiter that can be asked together with the other rate limiters (adapter.Joint)")
			}
			continue
		}
		at := slices.IndexFunc(claims, func(c claim) bool { return c.key == a.Key && same(c.limiter, acquirer) })
		if at < 0 {
			claims = append(claims, claim{limiter: acquirer, name: nameOf(acquirer), key: a.Key, n: a.N, asks: []int{i}})
			continue
		}
		c := &claims[at]
		c.asks = append(c.asks, i)
		switch {
		case c.n < 1 || a.N < 1:
			c.n = min(c.n, a.N)
		case c.n > math.MaxInt64-a.N:
			c.n = math.MaxInt64
		default:
			c.n += a.N
		}
	}
	slices.SortStableFunc(claims, func(x, y claim) int {
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.key, y.key))
	})
	return claims, rates, bad.err("hybridlimit: AllowAll")
}

// joins reports whether the first rate limiter can be asked together with another.
func joins(first, other Limiter) bool {
	one, ok := first.(joint)
	if w, wraps := other.(wrappedJoint); ok && wraps {
		return w.Joins(first)
	}
	return ok && one.Joins(other)
}

func isNil(l Limiter) bool {
	v := reflect.ValueOf(l)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// same reports whether two limiters are one. Limiters that cannot be compared are different.
func same(x, y Acquirer) bool { return reflect.TypeOf(x).Comparable() && x == y }

// nameOf returns the name of a limiter; empty: none.
func nameOf(l Limiter) string {
	if d, ok := l.(interface{ Name() string }); ok {
		return d.Name()
	}
	return ""
}

// allowRates asks the limiters that are no Acquirers together.
func allowRates(ctx context.Context, asks []Ask, rates []int) (Result, error) {
	joint := make([]Ask, len(rates))
	for i, at := range rates {
		joint[i] = Ask{Limiter: asks[at].Limiter, Key: asks[at].Key, N: asks[at].N}
	}
	res, err := allowJoint(ctx, joint)
	for i, at := range rates {
		asks[at].Result, asks[at].Taken = joint[i].Result, joint[i].Taken
	}
	return res, err
}

// withdraw releases the permits of a call that another limit denies. A limit that admits it has no answer then.
func withdraw(asks []Ask, claims []claim) {
	for _, c := range claims {
		asks[c.asks[0]].Permit.Release()
		asks[c.asks[0]].Permit = Permit{}
		for _, at := range c.asks {
			if asks[at].Result.Allowed {
				asks[at].Result = Result{}
			}
		}
	}
}

// admittedBy returns the result of a call that two limits admit: that of the one with
// fewer units remaining. first: there is no result yet.
func admittedBy(res, one Result, first bool) Result {
	if first {
		return one
	}
	shadowed, delay := res.Shadowed || one.Shadowed, max(res.Delay, one.Delay)
	if one.Remaining < res.Remaining {
		res = one
	}
	res.Shadowed, res.Delay = shadowed, delay
	return res
}
