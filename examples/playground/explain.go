package main

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// explain says in one line what happened to a request, and why.
func explain(l hybridlimit.Limit, res hybridlimit.Result, w window) string {
	switch l.Algorithm {
	case hybridlimit.AlgTokenBucket:
		if res.Allowed {
			return fmt.Sprintf("Admitted: a token was there and is gone, %s. One comes back every %s.", left(res.Remaining), each(l))
		}
		return fmt.Sprintf("Denied: the bucket is empty. The next token is there in %s.", short(res.RetryAfter))
	case hybridlimit.AlgLeakyBucket:
		if res.Allowed {
			return fmt.Sprintf("Admitted: the bucket took another unit, room for %d more. One leaks out every %s.", res.Remaining, each(l))
		}
		return fmt.Sprintf("Denied: the bucket would run over. It has leaked enough in %s.", short(res.RetryAfter))
	case hybridlimit.AlgLeakyQueue:
		switch {
		case res.Allowed && res.Delay == 0:
			return "Admitted: nobody was before it, so it is forwarded at once."
		case res.Allowed:
			return fmt.Sprintf("Queued: it is forwarded in %s, when those before it have been, one every %s.", short(res.Delay), each(l))
		}
		return fmt.Sprintf("Denied: the queue of %d is full. There is a place in %s.", l.BurstSize(), short(res.RetryAfter))
	case hybridlimit.AlgFixedWindow:
		if res.Allowed {
			return fmt.Sprintf("Admitted: number %d of %d in this window, which ends in %s.", w.Cur, l.Rate, short(res.ResetAfter))
		}
		return fmt.Sprintf("Denied: all %d of this window are used. The next one begins in %s.", l.Rate, short(res.RetryAfter))
	case hybridlimit.AlgSlidingWindow:
		switch {
		case w.Prev == 0 && res.Allowed:
			return fmt.Sprintf("Admitted: number %d of %d in this window, and none in the one before.", w.Cur, l.Rate)
		case w.Prev == 0:
			return fmt.Sprintf("Denied: all %d of this window are used. They count for a part of the next one, too: room in %s.", l.Rate, short(res.RetryAfter))
		case res.Allowed:
			return fmt.Sprintf("Admitted: %d in this window and a part of the %d in the one before, %s.", w.Cur, w.Prev, left(res.Remaining))
		}
		return fmt.Sprintf("Denied: %d in this window and what still counts of the %d before come to %d. Room in %s.", w.Cur, w.Prev, l.Rate, short(res.RetryAfter))
	default:
		if res.Allowed {
			return fmt.Sprintf("Admitted: noted with its time, %s. The note counts for %s.", left(res.Remaining), short(l.Period))
		}
		return fmt.Sprintf("Denied: %d are in the log of the last %s. The oldest leaves in %s.", l.Rate, short(l.Period), short(res.RetryAfter))
	}
}

// explainBurst is explain of several requests, the last of which was told last.
func explainBurst(answers []answer, last string) string {
	admitted := 0
	for _, a := range answers {
		if a.Status == 200 {
			admitted++
		}
	}
	return fmt.Sprintf("%d of %d admitted. The last one: %s", admitted, len(answers), last)
}

func left(n int64) string {
	if n == 0 {
		return "none is left"
	}
	return fmt.Sprintf("%d left", n)
}

// each is the time in which one unit comes back.
func each(l hybridlimit.Limit) string { return short(l.Period / time.Duration(l.Rate)) }

// short is a duration for people: "0.35 s".
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return "less than 1 ms"
}
