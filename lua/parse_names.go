package lua

import (
	"strconv"
	"strings"
)

// Part describes a Redis key of a limiter.
type Part struct {
	Tag     int    // the tag of the key
	Limiter string // the limiter's name
	// Key is the caller's key of a state. With HashKeys it is the hash that replaces the key. Empty: the Redis key
	// holds the limiter's switch, its fleet's limit or the fleet's limits of keys.
	Key string
	// Nth and Of are those of PartState, if the state is a part of a split key: the nth, from 1, of so many. Of is 0
	// for any other key.
	Nth, Of int
	Leased  bool // the Redis key is that of Rate
}

// Parse is the inverse of State, Rate, Switch, FleetLimit and KeyLimits. It returns false for any other Redis key, also
// for an epoch, an envelope, a heartbeat, permits or the lease of a process.
func (n Names) Parse(key string) (p Part, ok bool) {
	p.Tag, key, ok = n.cutTag(key)
	if !ok {
		return p, false
	}
	for _, whole := range []string{"@switch:", "@limit:", "@keys:"} {
		if name, ok := strings.CutPrefix(key, whole); ok {
			p.Limiter = name
			return p, true
		}
	}
	key, p.Leased = strings.CutPrefix(key, rateBegin)
	name, rest, ok := strings.Cut(key, ":")
	if p.Limiter, p.Nth, p.Of, ok = cutPart(name, ok); !ok {
		return p, false
	}
	p.Key = rest
	return p, p.Limiter != "" && p.Key != "" && (!p.Leased || p.Of == 0)
}

// rateBegin begins the name of a Redis key of leased rates, after the tag.
const rateBegin = "@rate:"

// cutPart is the inverse of PartName, also for a name without a part.
func cutPart(text string, is bool) (name string, nth, of int, ok bool) {
	name, part, split := strings.Cut(text, "@")
	if !split {
		return name, 0, 0, is
	}
	first, all, _ := strings.Cut(part, "of")
	nth, err1 := strconv.Atoi(first)
	of, err2 := strconv.Atoi(all)
	ok = is && err1 == nil && err2 == nil && nth >= 1 && nth <= of && of >= 2 && PartName(name, nth, of) == text
	return name, nth, of, ok
}

// Pattern returns a pattern for SCAN. It matches the Redis keys of all states of a limiter, or, with an empty name, all
// Redis keys of the deployment. It may match other keys too; Parse recognises them.
func (n Names) Pattern(name string) string {
	if name != "" {
		name = "[" + name[:1] + "@]" // a state, or leased rates; a second * could take Redis long for keys that callers choose
	}
	return n.pattern(name)
}

// pattern matches the Redis keys whose name begins so.
func (n Names) pattern(name string) string {
	begin, end := n.around() // neither a prefix nor a name can contain a wildcard
	return begin + "*" + end + name + "*"
}

// ParseHeld is the inverse of Held. It returns false for any other Redis key.
func (n Names) ParseHeld(key string) (p Part, ok bool) {
	p.Tag, key, ok = n.cutTag(key)
	rest, held := strings.CutPrefix(key, heldBegin)
	if !ok || !held {
		return p, false
	}
	p.Limiter, p.Key, ok = strings.Cut(rest, ":")
	return p, ok && p.Limiter != "" && p.Key != ""
}

// HeldPattern returns a pattern for SCAN. It matches the Redis keys of the permits of a limiter of calls in flight. It
// may match other keys too; ParseHeld recognises them.
func (n Names) HeldPattern(name string) string { return n.pattern(heldBegin + name + ":") }

// heldBegin begins the name of a Redis key of permits, after the tag.
const heldBegin = "@held:"

// around returns the texts before and after the tag in a Redis key.
func (n Names) around() (begin, end string) {
	begin, end, _ = strings.Cut(n.base(0), "{0")
	return begin + "{", end
}

// cutTag reads the tag of a Redis key of the deployment, and returns the text after it.
func (n Names) cutTag(key string) (tag int, rest string, ok bool) {
	begin, end := n.around()
	text, ours := strings.CutPrefix(key, begin)
	digits, rest, ok := strings.Cut(text, end)
	tag, err := strconv.Atoi(digits)
	return tag, rest, ours && ok && err == nil && strings.Trim(digits, "0123456789") == ""
}
