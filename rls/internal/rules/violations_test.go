package rules_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// rule returns a file with one rule whose rate_limit has the given fields.
func rule(fields string) string {
	return "domain: d\ndescriptors:\n- key: k\n  rate_limit: {" + fields + "}\n"
}

// laughs returns a file whose aliases stand for width to the power of depth descriptors.
func laughs(depth, width int) string {
	text := "domain: d\ndescriptors:\n- &x0 {key: k0}\n"
	for i := range depth {
		text += fmt.Sprintf("- &x%d {key: k%d, descriptors: [%s]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf(", *x%d", i), width)[2:])
	}
	return text
}

func TestViolations(t *testing.T) {
	deep := "domain: d\ndescriptors: " + strings.Repeat("[{key: k, descriptors: ", 40) + strings.Repeat("}]", 40)
	for _, c := range []struct{ text, want string }{
		// Files.
		{"", "a.yaml: is empty; it must have a domain"},
		{"# comment\n", "a.yaml: is empty; it must have a domain"},
		{"---\n", "a.yaml:2: is empty; it must have a domain"},
		{"'''\n", "a.yaml:2: is not YAML: found unexpected end of stream"},
		{"[1]", "a.yaml:1: must be an object with a domain and descriptors, and is a list"},
		{"text", `a.yaml:1: must be an object with a domain and descriptors, and is "text"`},
		{"apiVersion: v1\nkind: Pod\n", "a.yaml:1: is another kind of file: it has neither domain nor descriptors, but apiVersion, kind"},
		{`{"api": {"limit": "1/s"}}`, "a.yaml:1: is another kind of file: it has neither domain nor descriptors, but api"},
		{strings.Repeat("#", 4<<20+1), "a.yaml: is longer than 4194304 bytes"},
		{"descriptors: []\n", "a.yaml:1: domain: must not be empty"},
		{"domain:\n", "a.yaml:1: domain: must not be empty"},
		// Fields.
		{"domian: d\ndescriptors: []", "a.yaml:1: domian: is not a field; is it domain?\na.yaml:1: domain: must not be empty"},
		{"domain: d\ndomain: e", "a.yaml:2: domain: is a duplicate; the first is in line 1"},
		{"domain: d\nxyz: 1", "a.yaml:2: xyz: is not a field; the fields are domain, descriptors"},
		{"domain: d\nburst: 1", "a.yaml:2: burst: is a field of rate_limit, and not of this object"},
		{"domain: d\n7: 1", "a.yaml:2: has a field whose name is no text, but 7"},
		{"domain: d\n? [a]\n: 1", "a.yaml:2: has a field whose name is no text, but a list"},
		{"domain: [d]", "a.yaml:1: domain: must be a text, and is a list\na.yaml:1: domain: must not be empty"},
		{"domain: !x d", `a.yaml:1: domain: must be a text, and is !x "d"` + "\na.yaml:1: domain: must not be empty"},
		{"domain: d\ndescriptors: 5", "a.yaml:2: d.descriptors: must be a list of objects, and is 5"},
		{"domain: d\ndescriptors: {key: k}", "a.yaml:2: d.descriptors: must be a list of objects, and is an object"},
		{"domain: d\ndescriptors: [a, ~]", `a.yaml:2: d.descriptors[0]: must be an object, and is "a"` + "\na.yaml:2: d.descriptors[1]: must be an object, and is null"},
		{"domain: d\ndescriptors:\n- value: v\n", "a.yaml:3: d.descriptors[0]: must have a key that is not empty"},
		{"domain: d\ndescriptors:\n- {key: a, value: b}\n- key: a_b\n", "a.yaml:4: d.a_b: is a duplicate; the text of key_value must be unique among its siblings"},
		{"domain: d\ndescriptors:\n- {key: a, value: b c, shadow_mode: 1}\n", `a.yaml:3: d."a_b c".shadow_mode: must be true or false, and is 1`},
		{"domain: d\ndescriptors:\n- {key: a, shadow_mode: 'true'}\n", `a.yaml:3: d.a.shadow_mode: must be true or false, and is "true"`},
		{"domain: d\ndescriptors:\n- {key: a, value: b, share_threshold: true}\n", "a.yaml:3: d.a_b.share_threshold: must be on a descriptor whose value has a *, or with value_regex"},
		{"domain: d\ndescriptors:\n- {key: k, ratelimit: {}}\n", "a.yaml:3: d.descriptors[0].ratelimit: is not a field; is it rate_limit?"},
		{"domain: d\ndescriptors:\n- {key: k, rate_limit: 5}\n", "a.yaml:3: d.k.rate_limit: must be an object, and is 5\na.yaml:3: d.k.rate_limit.unit: (\"\") must be second, minute, hour, day, week, month or year"},
		// Limits.
		{rule("unit: fortnight, requests_per_unit: 1"), `a.yaml:4: d.k.rate_limit.unit: ("fortnight") must be second, minute, hour, day, week, month or year`},
		{rule("unit: unknown, requests_per_unit: 1"), `a.yaml:4: d.k.rate_limit.unit: ("unknown") must be second, minute, hour, day, week, month or year`},
		{rule("requests_per_unit: 1"), `a.yaml:4: d.k.rate_limit.unit: ("") must be second, minute, hour, day, week, month or year`},
		{rule("unit: day, requestsperunit: 1"), "a.yaml:4: d.k.rate_limit.requestsperunit: is not a field; is it requests_per_unit?"},
		{rule("unit: day, requests_per_unit: -1"), "a.yaml:4: d.k.rate_limit.requests_per_unit: must be a whole number from 0 to 4294967295, and is -1"},
		{rule("unit: day, requests_per_unit: 4294967296"), "a.yaml:4: d.k.rate_limit.requests_per_unit: must be a whole number from 0 to 4294967295, and is 4294967296"},
		{rule("unit: day, requests_per_unit: 99999999999999999999"), "a.yaml:4: d.k.rate_limit.requests_per_unit: must be a whole number from 0 to 4294967295, and is 99999999999999999999"},
		{rule("unit: day, requests_per_unit: 1.5"), "a.yaml:4: d.k.rate_limit.requests_per_unit: must be a whole number from 0 to 4294967295, and is 1.5"},
		{rule("unit: day, requests_per_unit: '5'"), `a.yaml:4: d.k.rate_limit.requests_per_unit: must be a whole number from 0 to 4294967295, and is "5"`},
		{rule("unlimited: true, unit: day"), "a.yaml:4: d.k.rate_limit.unit: must not be there: the rule is unlimited"},
		{rule("unlimited: true, burst: 5"), "a.yaml:4: d.k.rate_limit.burst: must not be there: the rule is unlimited"},
		{rule("unit: day, requests_per_unit: 1, replaces: x"), `a.yaml:4: d.k.rate_limit.replaces: must be a list of objects, and is "x"`},
		{rule("unit: day, requests_per_unit: 1, replaces: [x]"), `a.yaml:4: d.k.rate_limit.replaces[0]: must be an object with a name, and is "x"`},
		{rule("unit: day, requests_per_unit: 1, replaces: [{name: }]"), "a.yaml:4: d.k.rate_limit.replaces[0]: must have a name that is not empty"},
		{rule("unit: day, requests_per_unit: 1, name: x, replaces: [{name: x}]"), `a.yaml:4: d.k.rate_limit.replaces: must not contain the name of the rule itself, "x"`},
		{rule("unit: day, requests_per_unit: 1, algorithm: leaky_queue"), "a.yaml:4: d.k.rate_limit.algorithm: must not be leaky_queue, which delays calls: an answer to Envoy has no delay. leaky_bucket and token_bucket deny instead"},
		{rule("unit: day, requests_per_unit: 1, algorithm: fixed"), `a.yaml:4: d.k.rate_limit.algorithm: ("fixed") must be fixed_window, sliding_window, sliding_log, token_bucket, gcra or leaky_bucket`},
		{rule("unit: day, requests_per_unit: 1, burst: 5"), "a.yaml:4: d.k.rate_limit.burst: must be with token_bucket or leaky_bucket: a fixed window has no burst"},
		{rule("unit: day, requests_per_unit: 1, algorithm: gcra, burst: 0"), "a.yaml:4: d.k.rate_limit.burst: must be a whole number from 1 to 9223372036854775807, and is 0"},
		{rule("unit: hour, requests_per_unit: 1, calendar: Europe/Berlin"), "a.yaml:4: d.k.rate_limit.calendar: must be with the unit day, week, month or year"},
		{rule("unit: day, requests_per_unit: 1, calendar: Europe/Berlin, algorithm: gcra"), "a.yaml:4: d.k.rate_limit.calendar: must not be with an algorithm: it is one"},
		{rule("unit: day, requests_per_unit: 1, calendar: Europe/Berlin, burst: 5"), "a.yaml:4: d.k.rate_limit.burst: must be with token_bucket or leaky_bucket: a fixed window has no burst"},
		{
			rule("unit: month, requests_per_unit: 1, calendar: Europe/Berln"),
			`a.yaml:4: d.k.rate_limit.calendar: ("Europe/Berln") must be a time zone such as Europe/Berlin, or one and a begin such as "from day 15": ` +
				`Limit.Calendar.Zone ("Europe/Berln") is no time zone of this machine: check the name, or import time/tzdata`,
		},
		{
			rule("unit: month, requests_per_unit: 1, calendar: Europe/Berlin from Monday"),
			`a.yaml:4: d.k.rate_limit.calendar: ("Europe/Berlin from Monday") must be a time zone such as Europe/Berlin, or one and a begin such as "from day 15": ` +
				`cannot be read: expected "day" and a number, got "monday"`,
		},
		{
			rule("unit: year, requests_per_unit: 4294967291, algorithm: gcra"),
			"a.yaml:4: d.k.rate_limit.requests_per_unit: makes a limit that is not valid: hybridlimit: Limit (\"4294967291 per 8760h0m0s, burst 4294967291 (token bucket)\") " +
				"needs counts above 2⁵³ (one unit is 31536000000000 sub-units): use a smaller burst, or a rate and period with a larger common divisor",
		},
		{rule("unit: day, requests_per_unit: 1, overshoot: 1.01"), "a.yaml:4: d.k.rate_limit.overshoot: must be a number from 0 to 1, and is 1.01"},
		{rule("unit: day, requests_per_unit: 1, overshoot: .nan"), "a.yaml:4: d.k.rate_limit.overshoot: must be a number from 0 to 1, and is \".nan\""},
		{rule("unit: day, requests_per_unit: 9, split: 16385"), "a.yaml:4: d.k.rate_limit.split: must be a whole number from 0 to 16384, and is 16385"},
		{rule("unit: day, requests_per_unit: 9, split: x"), "a.yaml:4: d.k.rate_limit.split: must be a whole number from 0 to 16384, and is \"x\""},
		{rule("unit: day, requests_per_unit: 3, split: 4"), "a.yaml:4: d.k.rate_limit.split: does not fit: hybridlimit: invalid configuration: 4 parts of the limit 3 per 24h0m0s (fixed window): must be at most its rate and its burst, 3"},
		{rule("unit: day, requests_per_unit: 9, algorithm: sliding_log, split: 2"), "a.yaml:4: d.k.rate_limit.split: does not fit: hybridlimit: algorithm is not supported: a limit of the algorithm sliding log cannot be split"},
		{rule("unit: day, requests_per_unit: 1, overshoot: [1]"), "a.yaml:4: d.k.rate_limit.overshoot: must be a number from 0 to 1, and is a list"},
		// Bounds.
		{deep, "a.yaml:2: d" + strings.Repeat(".k", 32) + ".descriptors: has more than 32 descriptors around it"},
		{"domain: d\ndescriptors: &x [{key: k, descriptors: *x}]", "a.yaml:2: d" + strings.Repeat(".k", 32) + ".descriptors: has more than 32 descriptors around it"},
		{"domain: d\n<<: &x {<<: *x}", "a.yaml:2: has more than 32 merge keys (<<) inside each other"},
		{"domain: d\ndescriptors:\n" + many(100_001), "a.yaml:100003: d.descriptors: has descriptor 100001; 100000 is the most in all files"},
		// Each violation is reported.
		{
			"domain: d\ndescriptors:\n- rate_limit: {unit: x}\n- {key: k, value: [], shadow: 1}\n",
			`a.yaml:3: d.descriptors[0]: must have a key that is not empty
a.yaml:3: d.descriptors[0].rate_limit.unit: ("x") must be second, minute, hour, day, week, month or year
a.yaml:4: d.descriptors[1].shadow: is not a field; the fields are key, value, value_regex, rate_limit, descriptors, shadow_mode, quota_mode, detailed_metric, value_to_metric, share_threshold, metadata, floor
a.yaml:4: d.descriptors[1].value: must be a text, and is a list`,
		},
	} {
		s, err := rules.Parse(files([]string{c.text}), false)
		if err == nil || s != nil {
			t.Errorf("%.200q: %v, %v", c.text, s, err)
			continue
		}
		if got := err.Error(); got != c.want {
			t.Errorf("%.200q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// many returns descriptors.
func many(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "- key: k%d\n", i)
	}
	return text.String()
}

// Aliases cannot make a small file large.
func TestManyLaughs(t *testing.T) {
	for text, want := range map[string]string{
		laughs(9, 9):     "has more violations; parsing stopped here after 100",
		mergedLaughs(31): "makes more than 4194304 values",
	} {
		_, err := rules.Parse(files([]string{text}), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q: %v, want %s", text, err, want)
		}
	}
}

// mergedLaughs returns a file whose merge keys stand for two to the power of depth objects.
func mergedLaughs(depth int) string {
	text := "domain: d\ndescriptors:\n- &x0 {value: v}\n"
	for i := range depth {
		text += fmt.Sprintf("- &x%d {<<: [*x%d, *x%[2]d]}\n", i+1, i)
	}
	return text
}

// Parsing stops after a hundred violations, wherever they are, and says so. It is seen by the memory of the parser: a
// megabyte of unknown fields needed 90 GB and a minute. The files of 1 MiB have no more values than are read at all.
func TestManyViolations(t *testing.T) {
	for name, text := range map[string]string{
		"descriptors":  filled("domain: d\ndescriptors:\n", "- {x: text%d}\n"),
		"elements":     filled("domain: d\ndescriptors:\n", "- text%d\n"),
		"duplicates":   filled("domain: d\ndescriptors:\n", "- {key: k}     # %d\n"),
		"fields":       filled("domain: d\n", "unknown%d: 1\n"),
		"limits":       filled("domain: d\ndescriptors:\n- key: k\n  rate_limit:\n", "    unknown%d: 1\n"),
		"replaces":     filled("domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    replaces:\n", "    - text%d\n"),
		"merge keys":   filled("domain: d\n<<:\n", "- text%d\n"),
		"a deep field": filled("domain: d\ndescriptors:\n", "- {key: k%d, rate_limit: {unit: x}}\n"),
	} {
		all, mib := violations(t, text)
		const want = "a.yaml: has more violations; parsing stopped here after 100; correct these first"
		if last := all[len(all)-1].Error(); len(all) != 101 || last != want {
			t.Errorf("%s: %d errors, the last is %q", name, len(all), last)
		}
		for _, err := range all {
			if _, ok := errors.AsType[*rules.Error](err); !ok {
				t.Errorf("%v is %T", err, err)
			}
		}
		if mib > 300 { // of the tree of the YAML
			t.Errorf("%s: %d MiB", name, mib)
		}
	}
}

// The files after the one with too many violations are not read.
func TestManyFiles(t *testing.T) {
	texts := []string{"domain: d\n" + strings.Repeat("x: 1\n", 200)}
	for range 20 {
		texts = append(texts, filled("domain: d\n", "unknown%d: 1\n"))
	}
	all, mib := violations(t, texts...)
	if len(all) != 101 || mib > 50 {
		t.Errorf("%d errors, %d MiB", len(all), mib)
	}
}

// A file with many fields that no configuration has is no configuration. That is found without the cost of a search for
// the word that each field may mean: 200 µs.
func TestAnotherKindOfFile(t *testing.T) {
	all, mib := violations(t, filled("", "unknown%d: 1\n"))
	want := "a.yaml:1: is another kind of file: it has neither domain nor descriptors, " +
		"but unknown0, unknown1, unknown2, unknown3, unknown4"
	if len(all) != 1 || all[0].Error() != want || mib > 300 {
		t.Errorf("%v, %d MiB", all, mib)
	}
	// A field of a configuration counts wherever it is.
	all, _ = violations(t, filled("", "unknown%d: 1\n")+"domain: d\n")
	if len(all) != 101 || !strings.Contains(all[0].Error(), "unknown0: is not a field") {
		t.Errorf("%v", all)
	}
}

// A file of many short values is refused before the YAML is parsed. It needed 467 MiB for a mebibyte.
func TestManyValues(t *testing.T) {
	all, mib := violations(t, "{"+strings.Repeat("x, ", 1<<20/3)+"}")
	const want = "a.yaml:1: has more than 262144 values up to this line, the most in a file of its length"
	if len(all) != 1 || all[0].Error() != want || mib > 8 {
		t.Errorf("%v, %d MiB", all, mib)
	}
}

// violations parses texts that are wrong, and returns the errors and the memory that was taken in all.
func violations(t *testing.T, texts ...string) (all []error, mib uint64) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := rules.Parse(files(texts), false)
	runtime.ReadMemStats(&after)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v", err)
	}
	return joined.Unwrap(), (after.TotalAlloc - before.TotalAlloc) >> 20
}

// filled returns a text of a mebibyte of a part with a number.
func filled(before, part string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, part, i)
	}
	return b.String()
}

// The errors of several files stand together, and domains are joined on demand only.
func TestFiles(t *testing.T) {
	one, two := "domain: d\ndescriptors: [{key: a, value: 'x*'}]", "domain: d\ndescriptors: [{key: b, value: 'x*'}]"
	_, err := rules.Parse(files([]string{one, two, "domain: e", "x: y"}), false)
	want := `b.yaml:1: domain: ("d") is the domain of another file too
d.yaml:1: is another kind of file: it has neither domain nor descriptors, but x`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = rules.Parse(files([]string{one, one}), true)
	if err == nil || err.Error() != "b.yaml:2: d.a_x*: is a duplicate; the text of key_value must be unique among its siblings" {
		t.Errorf("%v", err)
	}
	limit := ", rate_limit: {unit: day, requests_per_unit: 1}}]"
	s := parse(t, "domain: d\ndescriptors: [{key: a, value: 'xy*'"+limit, "domain: d\ndescriptors: [{key: a, value: 'x*'"+limit)
	for value, want := range map[string]string{"xyz": "d.a_xy*", "xz": "d.a_x*"} {
		if m, _ := s.Find("d", entries("a", value)); m.Rule == nil || m.Rule.Path != want {
			t.Errorf("%s: %v", value, m)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{rule("unit: day, requests_per_unit: 1, shadow_mode: true"), "a.yaml:4: d.k.rate_limit.shadow_mode: has no effect; the fields of this object are requests_per_unit, unit, unit_multiplier, unlimited, name, replaces, algorithm, calendar, burst, overshoot, split"},
		{rule("unit: day"), "a.yaml:4: d.k.rate_limit.requests_per_unit: is missing and so 0: every call is denied"},
		{rule("unlimited: true, unit: x"), "a.yaml:4: d.k.rate_limit.unit: has no effect, and is no unit: the rule is unlimited"},
		{"domain: d\ndescriptors: [{key: k, shadow_mode: true, quota_mode: false}]", "a.yaml:2: d.k.shadow_mode: has no effect without rate_limit"},
		{"domain: d\n---\ndomain: e\n", "a.yaml:2: has a second document, which has no effect"},
	} {
		if got := parse(t, c.text).Warnings(); len(got) != 1 || got[0].Error() != c.want {
			t.Errorf("%q: %v, want %s", c.text, got, c.want)
		}
	}
}

// The values of merge keys count in the order of writing, as in the parser of Envoy's service. An object under a
// merge key takes part field by field.
func TestMergeKeys(t *testing.T) {
	s := parse(t, `
domain: d
descriptors:
- &base
  key: a
  rate_limit: &limit {unit: day, requests_per_unit: 5}
- {<<: *base, key: b, rate_limit: {requests_per_unit: 7}}
- {key: c, <<: {key: d}, rate_limit: *limit}
- {<<: [{key: e, value: x}, {key: f, rate_limit: *limit}], value: y}
- {<<: *base, key: g, rate_limit: }
`)
	want := `a.yaml:6 d.a: 5/DAY = 5 per 24h0m0s (fixed window)
a.yaml:7 d.b: 7/DAY = 7 per 24h0m0s (fixed window)
a.yaml:8 d.d: 5/DAY = 5 per 24h0m0s (fixed window)
a.yaml:9 d.e_y: 5/DAY = 5 per 24h0m0s (fixed window)
`
	if got := dump(s); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Different descriptors may have the same names joined by points. Their paths differ.
func TestPathsAreUnique(t *testing.T) {
	limit := "rate_limit: {unit: day, requests_per_unit: 1}"
	s := parse(t, "domain: d\ndescriptors:\n- {key: a, descriptors: [{key: b, "+limit+"}]}\n- {key: a.b, "+limit+"}\n", "domain: d.a\ndescriptors: [{key: b, "+limit+"}]")
	var paths []string
	for _, r := range s.Rules() {
		paths = append(paths, r.Path)
	}
	if got := fmt.Sprint(paths); got != "[d.a.b d.a.b#2 d.a.b#3]" {
		t.Error(got)
	}
	if m, _ := s.Find("d.a", entries("b", "x")); m.Metric != "d.a.b" {
		t.Errorf("the metric is %s", m.Metric)
	}
}
