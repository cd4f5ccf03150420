package main

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// callClass is a class of requests of a card.
type callClass struct {
	name    string
	limiter *local.Limiter // the view of the card's limiter
	sent    int64          // guarded by card.mu, like passed
	passed  int64
}

// classState is a callClass at one time, for the page.
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
		all = append(all, &callClass{name: d.Name, limiter: view})
	}
	return append(all, &callClass{name: hybridlimit.ClassCritical, limiter: l}), nil
}

// checkClass returns the violation of a class that a page asks for. A card without classes has only "".
func (c *card) checkClass(name string, bad *hybridlimit.Violations) {
	switch {
	case len(c.classes) == 0 && name != "":
		bad.Add("class", name, "must be empty: the card has no classes")
	case len(c.classes) > 0 && c.class(name) == nil:
		var names []string
		for _, class := range c.classes {
			names = append(names, class.name)
		}
		bad.Add("class", name, "must be "+strings.Join(names, " or "))
	}
}

// class returns the class with a name, or nil.
func (c *card) class(name string) *callClass {
	for _, class := range c.classes {
		if class.name == name {
			return class
		}
	}
	return nil
}

// ForClass is part of hybridlimit.Classer. It replaces the method of the embedded limiter, whose results the card would
// not hear.
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
		states = append(states, classState{class.name, c.floor(class), class.sent, class.passed})
	}
	return states
}

// explainClass is explain for a token bucket with classes. It is called with c.mu held.
func (c *card) explainClass(class *callClass, res hybridlimit.Result) string {
	floor := c.floor(class)
	switch {
	case res.Allowed && floor > 0:
		return fmt.Sprintf("Admitted: %s took a token, and above its floor %s.", class.name, left(res.Remaining))
	case res.Allowed:
		for _, other := range c.classes {
			if f := c.floor(other); f > res.Remaining {
				return fmt.Sprintf("Admitted: %s took a token that %s leaves to it, %s.", class.name, other.name, left(res.Remaining))
			}
		}
		return fmt.Sprintf("Admitted: %s took a token, %s.", class.name, left(res.Remaining))
	case floor > 0:
		tokens := "the last token"
		if floor > 1 {
			tokens = fmt.Sprintf("the last %d tokens", floor)
		}
		return fmt.Sprintf("Denied: %s leaves %s to critical requests. There is a token for it in %s.", class.name, tokens, short(res.RetryAfter))
	}
	return fmt.Sprintf("Denied: the bucket is empty, also for %s. The next token comes in %s.", class.name, short(res.RetryAfter))
}

var _ hybridlimit.Classer = (*overheard)(nil)
