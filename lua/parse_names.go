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
}

// Parse is the inverse of State, Switch, FleetLimit and KeyLimits. It returns false for any other Redis key, also for
// an epoch, an envelope, a heartbeat or permits.
func (n Names) Parse(key string) (p Part, ok bool) {
	begin, end := n.around()
	rest, ok := strings.CutPrefix(key, begin)
	if !ok {
		return p, false
	}
	tag, rest, ok := strings.Cut(rest, end)
	if p.Tag, ok = number(tag, ok); !ok {
		return p, false
	}
	for _, whole := range []string{"@switch:", "@limit:", "@keys:"} {
		if name, ok := strings.CutPrefix(rest, whole); ok {
			p.Limiter = name
			return p, true
		}
	}
	p.Limiter, p.Key, ok = strings.Cut(rest, ":")
	return p, ok && p.Limiter != "" && p.Limiter[0] != '@' && p.Key != ""
}

// Pattern returns a pattern for SCAN. It matches the Redis keys of all states of a limiter, or, with an empty name, all
// Redis keys of the deployment. It may match other keys too; Parse recognises them.
func (n Names) Pattern(name string) string {
	begin, end := n.around() // neither a prefix nor a name can contain a wildcard
	if name != "" {
		name += ":"
	}
	return begin + "*" + end + name + "*"
}

// ParseHeld is the inverse of Held. It returns false for any other Redis key.
func (n Names) ParseHeld(key string) (p Part, ok bool) {
	begin, end := n.around()
	rest, ok := strings.CutPrefix(key, begin)
	if !ok {
		return p, false
	}
	tag, rest, ok := strings.Cut(rest, end)
	if p.Tag, ok = number(tag, ok); !ok {
		return p, false
	}
	if rest, ok = strings.CutPrefix(rest, heldBegin); !ok {
		return p, false
	}
	p.Limiter, p.Key, ok = strings.Cut(rest, ":")
	return p, ok && p.Limiter != "" && p.Key != ""
}

// HeldPattern returns a pattern for SCAN. It matches the Redis keys of the permits of a limiter of calls in flight. It
// may match other keys too; ParseHeld recognises them.
func (n Names) HeldPattern(name string) string { return n.Pattern(heldBegin + name) }

// heldBegin begins the name of a Redis key of permits, after the tag.
const heldBegin = "@held:"

// around returns the texts before and after the tag in a Redis key.
func (n Names) around() (begin, end string) {
	begin, end, _ = strings.Cut(n.base(0), "{0")
	return begin + "{", end
}

// number reads a tag.
func number(text string, ok bool) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && strings.Trim(text, "0123456789") == ""
}
