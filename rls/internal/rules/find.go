package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"sync"

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
	byWildcard            // its key and value fit the asterisks of the name, or its value fits the expression
	byKey                 // its key is the name
)

// Find returns the rule of a descriptor without a limit of its own. Known reports whether the domain is known.
//
// It allocates the Key, and the Metric if it has values of the descriptor. Its time grows with the bytes of the
// descriptor and with the number of different lengths of wildcards. With asterisks elsewhere than at the end it grows with
// their number times the bytes: 60 KiB and 1000 patterns take about 10 ms (TestManyStars). An expression looks at 1 KiB at
// most.
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
	m := append([]byte(domain), '.')
	for i, e := range d.GetEntries() {
		if i > 0 && len(m) > len(domain)+1 {
			m = append(m, '.')
		}
		if m = append(m, e.GetKey()...); e.GetValue() != "" {
			m = append(append(m, '_'), e.GetValue()...)
		}
	}
	return Match{Key: key(domain, d.GetEntries(), nil), Metric: string(m)}
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
		if c := n.children[string(name)]; c != nil && c.regex == nil {
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
	if p := n.fitting(key, value, first); p != nil {
		first = p
	}
	if first != nil {
		return step{first, byWildcard}
	}
	if len(key) > n.longest { // do not hash a long text
		return step{}
	}
	if c := n.children[key]; c != nil && c.regex == nil {
		return step{c, byKey}
	}
	return step{}
}

// fitting returns the first pattern that key_value fits, if it is before another child in the files; nil: there is none.
func (n *node) fitting(key, value string, before *node) *node {
	if len(n.patterns) == 0 || before != nil && before.order < n.patterns[0].order {
		return nil
	}
	text := ""
	for _, p := range n.patterns {
		switch {
		case before != nil && before.order < p.order:
			return nil
		case p.regex != nil:
			if p.key == key && len(value) <= maxRegexValue && p.regex.MatchString(value) {
				return p
			}
			continue
		case text == "":
			text = key + "_" + value
		}
		if fits(p.parts, text) {
			return p
		}
	}
	return nil
}

// fits reports whether a text has these parts in their order, without overlap: the first one at the beginning and the last
// one at the end. It takes each part at its first place, which leaves most of the text to those behind it.
func fits(parts []string, text string) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, p)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// pattern returns the part of a name behind key_, which is the value of a wildcard. If the name begins otherwise, it
// returns the whole name, and false.
func pattern(name, key string) (string, bool) {
	if rest, ok := strings.CutPrefix(name, key); ok && strings.HasPrefix(rest, "_") {
		return rest[1:], true
	}
	return name, false
}

// maxKey is the length of the longest Key, in bytes.
const maxKey = 200

// key returns the Key of a descriptor:
//
//	domain|key=value|key=value
//
// A backslash stands before |, = and ~ in a key, before | in a value or domain, and before a backslash anywhere. So
// different descriptors have different keys. The value of a wildcard with share_threshold is the wildcard. If the key
// is not the beginning of the wildcard, ~ and the whole name of the wildcard stand for the value.
//
// A key above maxKey bytes is | and 32 hexadecimal digits of a hash. No other key begins with |, because a domain is
// not empty.
func key(domain string, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	var space [maxKey]byte
	k, fits := escaped(space[:0], 0, domain, inText)
	for i := 0; i < len(entries) && fits; i++ {
		sign, value := counted(entries, steps, i)
		if k, fits = escaped(k, '|', entries[i].GetKey(), inKey); fits {
			k, fits = escaped(k, sign, value, inText)
		}
	}
	if !fits {
		return hashed(domain, entries, steps)
	}
	return string(k)
}

// counted returns the value of entry i for which a rule counts, and its sign.
func counted(entries []*ratelimit.RateLimitDescriptor_Entry, steps []step, i int) (sign byte, value string) {
	if i < len(steps) && steps[i].shared() {
		if value, ok := pattern(steps[i].node.name, entries[i].GetKey()); ok {
			return '=', value
		}
		return '~', steps[i].node.name
	}
	return '=', entries[i].GetValue()
}

// The bytes that a backslash precedes.
const (
	inText = 1 << iota // in a domain or value
	inKey
)

var special = [256]uint8{'\\': inText | inKey, '|': inText | inKey, '=': inKey, '~': inKey}

// escaped appends a sign, unless it is 0, and a text with its backslashes. Fits reports whether the result has at most
// maxKey bytes.
func escaped(k []byte, sign byte, text string, where uint8) (_ []byte, fits bool) {
	if sign != 0 {
		k = append(k, sign)
	}
	if len(k)+len(text) > maxKey {
		return k, false
	}
	from := 0
	for i := range len(text) {
		if special[text[i]]&where != 0 {
			k = append(append(k, text[from:i]...), '\\')
			from = i
		}
	}
	k = append(k, text[from:]...)
	return k, len(k) <= maxKey
}

// digest is a hash in use, with its buffer.
type digest struct {
	hash hash.Hash
	buf  [1024]byte
}

var digests = sync.Pool{New: func() any { return &digest{hash: sha256.New()} }}

// hashed returns the Key of a descriptor whose text is too long: a hash of the texts, each with its length.
func hashed(domain string, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	d := digests.Get().(*digest)
	defer digests.Put(d)
	d.hash.Reset()
	d.write(domain)
	for i, e := range entries {
		sign, value := counted(entries, steps, i)
		d.buf[0] = sign
		d.hash.Write(d.buf[:1])
		d.write(e.GetKey())
		d.write(value)
	}
	sum := d.hash.Sum(d.buf[:0])
	var k [1 + 2*16]byte
	k[0] = '|'
	hex.Encode(k[1:], sum[:16])
	return string(k[:])
}

// write adds the length of a text and the text to the hash.
func (d *digest) write(text string) {
	d.hash.Write(binary.LittleEndian.AppendUint64(d.buf[:0], uint64(len(text))))
	for len(text) > 0 {
		n := copy(d.buf[:], text)
		d.hash.Write(d.buf[:n])
		text = text[n:]
	}
}

// metric returns the name under which Envoy's service counts a descriptor. Most rules have one name for all
// descriptors: then nothing is allocated.
func metric(r *Rule, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	shares := slices.ContainsFunc(steps, step.shared)
	var space [256]byte
	m := append(space[:0], r.Domain...)
	for i, e := range entries {
		m = append(m, '.')
		key, value, s := e.GetKey(), e.GetValue(), steps[i]
		verbatim := r.DetailedMetric || s.node.valueToMetric // the value, and not the name of the descriptor
		_, own := pattern(s.node.name, key)
		switch {
		case s.how == byWildcard && !own && (s.node.share || !verbatim):
			m = join(m, key, s.node.name)
		case s.how == byWildcard && (s.node.share || !verbatim), !r.DetailedMetric &&
			(s.how == byKey && (!verbatim || value == "") || s.how == exactly && value != ""):
			m = append(m, s.node.name...)
		case value == "" && (shares || !r.DetailedMetric): // otherwise an empty value leaves its underscore
			m = append(m, key...)
		default:
			m = join(m, key, value)
		}
	}
	if string(m) == r.metric {
		return r.metric
	}
	return string(m)
}

// shared reports whether the wildcard of a step stands for the value.
func (s step) shared() bool { return s.how == byWildcard && s.node.share }

func join(m []byte, key, value string) []byte {
	return append(append(append(m, key...), '_'), value...)
}
