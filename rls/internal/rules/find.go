package rules

import (
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// step is the descriptor of the configuration that an entry leads to.
type step struct {
	node *node
	how  how
}

// how is the way in which an entry matches.
type how uint8

const (
	exactly    how = iota // its key and value are the name
	byWildcard            // the name is the beginning
	byKey                 // its key is the name
)

// Find returns the rule of a descriptor without a limit of its own. Known reports whether the domain is known.
//
// It allocates the Key, and the Metric if it has values of the descriptor. Its time grows with the bytes of the
// descriptor and with the number of different lengths of wildcards.
func (s *Set) Find(domain string, d *ratelimit.RateLimitDescriptor) (m Match, known bool) {
	at, known := s.domains[domain]
	entries := d.GetEntries()
	if len(entries) > maxDepth || len(entries) == 0 || !known {
		return Match{}, known
	}
	var steps [maxDepth]step
	for i, e := range entries {
		steps[i] = at.next(e.GetKey(), e.GetValue())
		if at = steps[i].node; at == nil {
			return Match{}, true
		}
	}
	if at.rule == nil {
		return Match{}, true
	}
	counted := at.rule.level
	return Match{
		Rule:   at.rule,
		Key:    key(domain, entries[:counted], steps[:counted]),
		Metric: metric(at.rule, entries, steps[:len(entries)]),
	}, true
}

// Own returns the Key and the Metric of a descriptor with a limit of its own. Its Rule is nil.
func Own(domain string, d *ratelimit.RateLimitDescriptor) Match {
	var m strings.Builder
	m.WriteString(domain)
	m.WriteByte('.')
	for i, e := range d.GetEntries() {
		if i > 0 && m.Len() > len(domain)+1 {
			m.WriteByte('.')
		}
		m.WriteString(e.GetKey())
		if e.GetValue() != "" {
			m.WriteByte('_')
			m.WriteString(e.GetValue())
		}
	}
	return Match{Key: key(domain, d.GetEntries(), nil), Metric: m.String()}
}

// next returns the child that an entry leads to. The order is that of Envoy's service: the name, the wildcards, the key
// alone.
func (n *node) next(key, value string) step {
	if len(n.children) == 0 {
		return step{}
	}
	var space [256]byte
	// The name of the entry is key_value. Its bytes behind the longest name of a child are of no use.
	name := append(space[:0], key[:min(len(key), n.longest)]...)
	size := len(key) + 1 + len(value)
	if room := n.longest - len(name); room > 0 {
		name = append(name, '_')
		name = append(name, value[:min(len(value), room-1)]...)
	}
	if size == len(name) {
		if c := n.children[string(name)]; c != nil {
			return step{c, exactly}
		}
	}
	var first *node
	for _, l := range n.lengths {
		if l > len(name) {
			break
		}
		if c := n.wildcards[string(name[:l])]; c != nil && (first == nil || c.order < first.order) {
			first = c
		}
	}
	if first != nil {
		return step{first, byWildcard}
	}
	if len(key) > n.longest { // do not hash a long text
		return step{}
	}
	if c := n.children[key]; c != nil {
		return step{c, byKey}
	}
	return step{}
}

// pattern returns the part of a name behind key_, which is the value of a wildcard. If the name begins otherwise, it
// returns the whole name, and false.
func pattern(name, key string) (string, bool) {
	if len(name) > len(key) && name[:len(key)] == key && name[len(key)] == '_' {
		return name[len(key)+1:], true
	}
	return name, false
}
