package lua

import (
	"strconv"
	"strings"
)

// Part is what of a deployment a Redis key is.
type Part struct {
	Tag     int    // its slot
	Limiter string // the limiter's name
	// Key is the caller's key whose state it is, or, with HashKeys, the hash that
	// stands for the key. Empty: it is of the limiter as a whole, its heartbeats or
	// its switch.
	Key string
}

// Parse reads a Redis key that these Names can have built, of a limiter: the
// other way round. It reports false for any other key, an epoch or an envelope
// too.
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
	for _, whole := range []string{"@fleet:", "@switch:"} {
		if name, ok := strings.CutPrefix(rest, whole); ok {
			p.Limiter = name
			return p, true
		}
	}
	p.Limiter, p.Key, ok = strings.Cut(rest, ":")
	return p, ok && p.Limiter != "" && p.Limiter[0] != '@' && p.Key != ""
}

// Pattern is a pattern of SCAN that matches all Redis keys of the states of a
// limiter, and of all parts of the deployment where the name is empty. It may
// match others: Parse tells them apart.
func (n Names) Pattern(name string) string {
	begin, end := n.around() // neither a prefix nor a name can hold a wildcard
	if name != "" {
		name += ":"
	}
	return begin + "*" + end + name + "*"
}

// around is what stands before and after the tag in a key.
func (n Names) around() (begin, end string) {
	begin, end, _ = strings.Cut(n.base(0), "{0")
	return begin + "{", end
}

// number reads a tag.
func number(text string, ok bool) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && strings.Trim(text, "0123456789") == ""
}
