// Package spend is for calls whose cost is known only afterwards: it takes an estimate, and settles the actual cost.
//
//	s, res, err := spend.Begin(ctx, hybridlimit.Ask{Limiter: tokens, Key: user, N: estimate})
//	if err != nil || !res.Allowed {
//		return res, err
//	}
//	defer s.Settle(ctx) // also after a panic, and when the client has left
//	...
//	_, err = s.Use(ctx, 0, used) // the units used so far
//
// Begin admits as hybridlimit.AllowAll does. Settle gives back what Use has not told of, to the window in which the
// units were taken. Units beyond the estimate are charged when Use tells of them: in the window of that time, and
// whether or not there are any left, because they are used already. Without a Use the estimate stands.
//
// At each quiet moment, the units debited for settled calls are the totals of their last Use, plus the estimates of
// those without one, plus units that could not be given back. These are the units of a window that is over or has
// another period since, the units of a bucket that has been full since, and those of the fallback, whose share no other
// process has. A call that is never settled keeps its estimate. A Reset of the key does not know of running calls: what
// they give back comes back after it too.
package spend
