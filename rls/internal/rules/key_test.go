package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// ambiguous has rules whose names can be read in several ways.
const ambiguous = `
domain: d
descriptors:
- {key: a, share_threshold: false, rate_limit: &l {unit: day, requests_per_unit: 1}, descriptors: &all [{key: a, rate_limit: *l}, {key: a, value: b, rate_limit: *l}, {key: b*, rate_limit: *l}]}
- {key: a, value: b_c, rate_limit: *l, descriptors: *all}
- {key: a, value: 's*', share_threshold: true, rate_limit: *l, descriptors: *all}
- {key: 's*', share_threshold: true, rate_limit: *l, descriptors: *all}
- {key: s, value: 's*', share_threshold: true, rate_limit: *l}
- {key: w*, rate_limit: *l, descriptors: *all}
- {key: "a|a=", rate_limit: *l}
- {key: "a=", rate_limit: *l}
- {key: "a\\", rate_limit: *l}
- {key: "", value: x, <<: {key: "_"}, rate_limit: *l}
`

// texts are keys and values that are easy to confuse.
var texts = []string{
	"", "a", "b", "c", "s", "w", "a_b", "b_c", "b_c_", "_", "_x", "x", "s*", "*", "a=", "=", "|", "|a=", "a|a=", `\`, `a\`, `\|`, `a\|`, "~", "~s*", "a~", "ss*", "s_s*",
	"\n", "\x00", "\xff", "\xfe\xff", ".", "a.a", "d", strings.Repeat("a", 198), strings.Repeat("a", 199), strings.Repeat("|", 99), strings.Repeat("|", 100), strings.Repeat("x", 300),
}

// identity returns the path of a rule and the values for which it counts, in a form without ambiguity.
func identity(s *Set, domain string, d *ratelimit.RateLimitDescriptor) string {
	at := s.domains[domain]
	id := []string{domain}
	for _, e := range d.GetEntries() {
		step := at.next(e.GetKey(), e.GetValue())
		at = step.node
		value := e.GetValue()
		if step.how == byWildcard && at.share {
			if value = at.name; strings.HasPrefix(at.name, e.GetKey()+"_") {
				value = at.name[len(e.GetKey())+1:]
			}
		}
		id = append(id, at.name, e.GetKey(), value)
	}
	return fmt.Sprintf("%q", id)
}

// Different rules or values have different keys, and equal ones have equal keys.
func TestKeysAreInjective(t *testing.T) {
	set, err := Parse([]File{{"a.yaml", []byte(ambiguous)}, {"b.yaml", []byte(strings.Replace(ambiguous, "domain: d", `domain: "d|a=a"`, 1))}}, false)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{} // identities by key
	check := func(domain string, kv ...string) {
		d := &ratelimit.RateLimitDescriptor{}
		for i := 0; i < len(kv); i += 2 {
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: kv[i], Value: kv[i+1]})
		}
		m, known := set.Find(domain, d)
		if !known {
			t.Fatalf("%q is not known", domain)
		}
		if m.Rule == nil {
			return
		}
		id := identity(set, domain, d)
		if other, ok := of[m.Key]; ok && other != id {
			t.Fatalf("%s and %s have the key %q", id, other, m.Key)
		}
		of[m.Key] = id
		if len(m.Key) > maxKey {
			t.Fatalf("%s has a key of %d bytes", id, len(m.Key))
		}
	}
	for _, domain := range []string{"d", "d|a=a"} {
		for _, k := range texts {
			for _, v := range texts {
				check(domain, k, v)
				for _, k2 := range []string{"a", "b", "bb", "s"} {
					for _, v2 := range texts {
						check(domain, k, v, k2, v2)
					}
				}
			}
		}
	}
	ids := map[string]bool{}
	for _, id := range of {
		if ids[id] {
			t.Errorf("%s has two keys", id)
		}
		ids[id] = true
	}
	if len(of) < 10_000 {
		t.Errorf("only %d keys were compared", len(of))
	}
}

// A key that is not a hash tells its texts.
func TestKeyReadsBack(t *testing.T) {
	for _, k := range texts {
		for _, v := range texts {
			d := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: k, Value: v}, {Key: v, Value: k}}}
			m := Own("d"+k, d)
			if strings.HasPrefix(m.Key, "|") {
				if len(m.Key) != 33 || len("d"+k)+2*len(k)+2*len(v)+4 <= maxKey/2 {
					t.Fatalf("%q has the key %q", d, m.Key)
				}
				continue
			}
			if got, want := readBack(m.Key), []string{"d" + k, k, v, v, k}; !slices.Equal(got, want) {
				t.Fatalf("%q reads back as %q, want %q", m.Key, got, want)
			}
		}
	}
}

// readBack returns the texts of a key.
func readBack(key string) []string {
	texts := []string{""}
	last := func() *string { return &texts[len(texts)-1] }
	inValue := true // a domain is read like a value
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c == '\\':
			i++
			*last() += key[i : i+1]
		case c == '|':
			texts, inValue = append(texts, ""), false
		case !inValue && c == '=':
			texts, inValue = append(texts, ""), true
		default:
			*last() += string([]byte{c})
		}
	}
	return texts
}

// Keys that differ beyond their first 200 bytes differ, and the place of the border does not matter.
func TestLongKeys(t *testing.T) {
	keys := map[string]int{}
	for n := range 400 {
		for _, kv := range [][]string{{strings.Repeat("x", n), "y"}, {"y", strings.Repeat("x", n)}, {"y", strings.Repeat("|", n)}} {
			d := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: kv[0], Value: kv[1]}}}
			key := Own("d", d).Key
			escaped := len("d|=") + len(kv[0]) + len(kv[1]) + strings.Count(kv[1], "|")
			if hashed := strings.HasPrefix(key, "|"); hashed != (escaped > maxKey) || !hashed && len(key) != escaped {
				t.Fatalf("%q has the key %q", kv, key)
			}
			keys[key]++
		}
	}
	if len(keys) != 1200-1 { // y and no x at all is twice there: with | and with x
		t.Errorf("%d keys", len(keys))
	}
}

// FuzzFind parses any text and looks up any descriptor.
func FuzzFind(f *testing.F) {
	f.Add([]byte(ambiguous), "d", "a", "b", "a", "b")
	f.Add([]byte("domain: d\ndescriptors: &x [{key: k, descriptors: *x}]"), "d", "k", "", "k", "")
	f.Add([]byte("domain: d\n<<: [*a]"), "d", "k", "", "k", "")
	f.Add([]byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: DAY, requests_per_unit: 0b11, replaces: [{name: x}]}}]"), "d", "k", "\xff", "", "")
	f.Fuzz(func(t *testing.T, data []byte, domain, k1, v1, k2, v2 string) {
		set, err := Parse([]File{{"a.yaml", data}, {"b.yaml", data}}, true)
		if one, bad := Parse([]File{{"a.yaml", data}}, false); bad == nil {
			set, err = one, nil
		}
		if err != nil {
			for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
				if v := e.(*Error); v.File == "" || v.Text == "" || v.Line < 0 {
					t.Errorf("%#v", v)
				}
			}
			return
		}
		paths := map[string]bool{}
		for _, r := range set.Rules() {
			if paths[r.Path] {
				t.Errorf("the path %q is there twice", r.Path)
			}
			paths[r.Path] = true
			if !r.Unlimited && r.Limit.Validate() != nil {
				t.Errorf("%v", r.Limit)
			}
		}
		domains := append(set.Domains(), domain)
		of := map[string]string{}
		for _, domain := range domains {
			for _, kv := range [][]string{{}, {k1, v1}, {k2, v2}, {k1, v2}, {v1, k2}, {k1, v1, k2, v2}, {k1 + "_" + v1, k2, v2, ""}, {k1, v1, k1, v1, k2, v2}} {
				d := &ratelimit.RateLimitDescriptor{}
				for i := 0; i < len(kv); i += 2 {
					d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: kv[i], Value: kv[i+1]})
				}
				m, _ := set.Find(domain, d)
				if m.Rule == nil {
					continue
				}
				id := identity(set, domain, d)
				if other, ok := of[m.Key]; ok && other != id {
					t.Errorf("%s and %s have the key %q", id, other, m.Key)
				}
				of[m.Key] = id
			}
		}
	})
}
