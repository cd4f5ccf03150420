package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/local"
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

// callClass is a class of requests of a card.
type callClass struct {
	classState                // guarded by card.mu
	limiter    *local.Limiter // the view of the card's limiter
}

// classState is a class at one time, for the page.
type classState struct {
	Name   string `json:"name"`
	Floor  int64  `json:"floor"` // units that the class leaves to others
	Sent   int64  `json:"sent"`
	Passed int64  `json:"passed"`
}

// classesOf returns the declared classes and then the critical one, or nil for a limiter without classes.
func classesOf(l *local.Limiter, declared []hybridlimit.Class) ([]*callClass, error) {
	if len(declared) == 0 {
		return nil, nil
	}
	var all []*callClass
	for _, d := range declared {
		view, err := l.Class(d.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, &callClass{classState{Name: d.Name}, view})
	}
	return append(all, &callClass{classState{Name: hybridlimit.ClassCritical}, l}), nil
}

// checkClass returns the violation of a class that a page asks for. A card without classes has only "".
func (c *card) checkClass(name string, bad *adapter.Violations) {
	switch {
	case len(c.classes) == 0 && name != "":
		bad.Add("class", name, "must be empty: the card has no classes")
	case len(c.classes) > 0 && c.class(name) == nil:
		var names []string
		for _, class := range c.classes {
			names = append(names, class.Name)
		}
		bad.Add("class", name, "must be "+strings.Join(names, " or "))
	}
}

// class returns the class with a name, or nil.
func (c *card) class(name string) *callClass {
	if i := slices.IndexFunc(c.classes, func(class *callClass) bool { return class.Name == name }); i >= 0 {
		return c.classes[i]
	}
	return nil
}

// ForClass replaces the method of the embedded limiter, whose results the card would not hear.
func (o *overheard) ForClass(name string) hybridlimit.Limiter {
	view := o.Limiter.ForClass(name)
	for _, class := range o.card.classes {
		if hybridlimit.Limiter(class.limiter) == view {
			return &overheard{class.limiter, o.card, class, o.quick}
		}
	}
	return o
}

// floor returns the units that a class leaves to others.
func (c *card) floor(class *callClass) int64 {
	return c.limit.BurstSize() - class.limiter.Policy(visitor).Limit.BurstSize()
}

// classStates is called with c.mu held.
func (c *card) classStates() []classState {
	states := []classState{}
	for _, class := range c.classes {
		class.Floor = c.floor(class)
		states = append(states, class.classState)
	}
	return states
}

// explainClass is explain for a token bucket with classes. It is called with c.mu held.
func (c *card) explainClass(class *callClass, res hybridlimit.Result) string {
	floor := c.floor(class)
	switch {
	case res.Allowed && floor > 0:
		return fmt.Sprintf("Admitted: %s took a token, and above its floor %s.", class.Name, left(res.Remaining))
	case res.Allowed:
		for _, other := range c.classes {
			if f := c.floor(other); f > res.Remaining {
				return fmt.Sprintf("Admitted: %s took a token that %s leaves to it, %s.", class.Name, other.Name, left(res.Remaining))
			}
		}
		return fmt.Sprintf("Admitted: %s took a token, %s.", class.Name, left(res.Remaining))
	case floor > 0:
		tokens := "the last token"
		if floor > 1 {
			tokens = fmt.Sprintf("the last %d tokens", floor)
		}
		return fmt.Sprintf("Denied: %s leaves %s to critical requests. There is a token for it in %s.", class.Name, tokens, short(res.RetryAfter))
	}
	return fmt.Sprintf("Denied: the bucket is empty, also for %s. The next token comes in %s.", class.Name, short(res.RetryAfter))
}

var _ adapter.Classer = (*overheard)(nil)
