package rules_test

import "testing"

// TestBuckets find rules whatever the order of their entries is.
func TestBuckets(t *testing.T) {
	s := parse(t, `
domain: d
descriptors:
- key: z
  rate_limit: {unit: second, requests_per_unit: 1}
  descriptors:
  - key: a
    value: "v*"
    rate_limit: {unit: second, requests_per_unit: 2}
    descriptors:
    - {key: m, rate_limit: {unit: second, requests_per_unit: 3}}
- key: a
  descriptors:
  - {key: b, rate_limit: {unit: second, requests_per_unit: 4}}
`)
	for _, c := range []struct {
		bucket map[string]string
		path   string
		key    string
	}{
		{map[string]string{"z": "1"}, "d.z", "d|z=1"},
		{map[string]string{"a": "v1", "z": "1"}, "d.z.a_v*", "d|z=1|a=v1"},
		{map[string]string{"a": "v1", "m": "x", "z": "1"}, "d.z.a_v*.m", "d|z=1|a=v1|m=x"},
		{map[string]string{"b": "1", "a": "2"}, "d.a.b", "d|a=2|b=1"},
		{map[string]string{"a": "2"}, "", ""},
		{map[string]string{"z": "1", "q": "2"}, "", ""},
		{map[string]string{}, "", ""},
		{map[string]string{"1": "", "2": "", "3": "", "4": "", "5": "", "6": "", "7": "", "8": "", "z": ""}, "", ""},
	} {
		m, known := s.FindBucket("d", c.bucket)
		path := ""
		if m.Rule != nil {
			path = m.Rule.Path
		}
		if path != c.path || m.Key != c.key || !known {
			t.Errorf("%v: %q, %q, %t; want %q, %q", c.bucket, path, m.Key, known, c.path, c.key)
		}
	}
	if _, known := s.FindBucket("other", map[string]string{"z": "1"}); known {
		t.Error("an unknown domain is known")
	}
}
