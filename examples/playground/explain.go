package main

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// explain describes the result of a request and its reason in one line.
func explain(l hybridlimit.Limit, res hybridlimit.Result, w window) string {
	switch l.Algorithm {
	case hybridlimit.AlgTokenBucket:
		if res.Allowed {
			return fmt.Sprintf("Admitted: it took a token, %s. A new token comes every %s.", left(res.Remaining), each(l))
		}
		return fmt.Sprintf("Denied: the bucket is empty. The next token comes in %s.", short(res.RetryAfter))
	case hybridlimit.AlgLeakyBucket:
		if res.Allowed {
			return fmt.Sprintf("Admitted: the bucket took a unit and has room for %d more. A unit leaks out every %s.", res.Remaining, each(l))
		}
		return fmt.Sprintf("Denied: the bucket would run over. There is room in %s.", short(res.RetryAfter))
	case hybridlimit.AlgLeakyQueue:
		switch {
		case res.Allowed && res.Delay == 0:
			return "Admitted: the queue was empty, so the request is forwarded at once."
		case res.Allowed:
			return fmt.Sprintf("Queued: the request is forwarded in %s, after those before it. One leaves every %s.", short(res.Delay), each(l))
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
			return fmt.Sprintf("Admitted: number %d of %d in this window, and none in the window before.", w.Cur, l.Rate)
		case w.Prev == 0:
			return fmt.Sprintf("Denied: all %d of this window are used. They count for a part of the next one, too. There is room in %s.", l.Rate, short(res.RetryAfter))
		case res.Allowed:
			return fmt.Sprintf("Admitted: %d in this window, and a part of the %d in the window before, %s.", w.Cur, w.Prev, left(res.Remaining))
		}
		return fmt.Sprintf("Denied: %d in this window, and the part of the %d before that still counts, make %d. There is room in %s.", w.Cur, w.Prev, l.Rate, short(res.RetryAfter))
	default:
		if res.Allowed {
			return fmt.Sprintf("Admitted: its time is in the log, %s. The entry counts for %s.", left(res.Remaining), short(l.Period))
		}
		return fmt.Sprintf("Denied: %d are in the log of the last %s. The oldest leaves in %s.", l.Rate, short(l.Period), short(res.RetryAfter))
	}
}

// explainBurst describes the results of several requests. last is the description of the last one.
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

// each returns the time in which one unit is refilled.
func each(l hybridlimit.Limit) string { return short(l.Period / time.Duration(l.Rate)) }

// short formats a duration like "0.35 s".
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
