package limitfile_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limitfile"
)

const full = `{
  "api": {
    "keys": {"partner-7": "500/s", "partner-8": "gold", "a \"b\"": "blocked", "~": "gold"},
    "limit": "100/s burst 200",
    "plans": {"gold": "1000/s burst 3000"},
    "shadow": false, "mode": "strict", "fallback": "deny_all"
  },
  "login": {"limit": "5/min sliding window"},
  "plain": {}
}
`

// parsed parses a text that must be valid.
func parsed(t testing.TB, text string) *limitfile.File {
	t.Helper()
	f, err := limitfile.Parse("limits.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	gold := hybridlimit.TokenBucket(1000, time.Second, 3000)
	for _, start := range []string{"", "\ufeff", "\n\n"} {
		f := parsed(t, start+full)
		want := map[string]hybrid.Settings{
			"api": {
				Limit: hybridlimit.TokenBucket(100, time.Second, 200),
				Keys: map[string]hybridlimit.Limit{
					"partner-7": hybridlimit.PerSecond(500), "partner-8": gold, `a "b"`: hybridlimit.Blocked(), "~": gold,
				},
				Shadow:   new(false),
				Mode:     new(hybrid.ModeStrict),
				Fallback: new(hybrid.FallbackDenyAll),
			},
			"login": {Limit: hybridlimit.SlidingWindow(5, time.Minute)},
			"plain": {},
		}
		if got := f.Settings(); !reflect.DeepEqual(got, want) {
			t.Errorf("settings %+v, want %+v", got, want)
		}
		if got := f.Limiters(); !slices.Equal(got, []string{"api", "login", "plain"}) || f.Name() != "limits.json" {
			t.Errorf("limiters %q of %s", got, f.Name())
		}
		if l, ok := f.Plan("api", "gold"); l != gold || !ok || len(f.Plans("api")) != 1 {
			t.Errorf("plan %v, %v", l, ok)
		}
		for _, of := range [][2]string{{"api", "silver"}, {"login", "gold"}, {"other", "gold"}} {
			if l, ok := f.Plan(of[0], of[1]); ok || l != (hybridlimit.Limit{}) {
				t.Errorf("%q: plan %v", of, l)
			}
		}
	}
	if f := parsed(t, "{}"); len(f.Settings()) != 0 || f.Plans("api") != nil {
		t.Error("an empty object has settings")
	}
}

// The maps belong to the caller: a change of them does not change the file.
func TestMapsAreCopies(t *testing.T) {
	f := parsed(t, full)
	was := f.String()
	all := f.Settings()
	clear(all["api"].Keys)
	clear(all)
	clear(f.Plans("api"))
	if f.String() != was {
		t.Errorf("the file is now\n%s", f)
	}
}

// All names of modes and fallbacks can be used. The next number of each has no name.
func TestNamesOfModesAndFallbacks(t *testing.T) {
	for m := hybrid.Mode(0); !strings.HasPrefix(m.String(), "Mode("); m++ {
		f := parsed(t, fmt.Sprintf(`{"a":{"mode":%q}}`, m))
		if got := f.Settings()["a"].Mode; got == nil || *got != m {
			t.Errorf("%v: %v", m, got)
		}
	}
	for m := hybrid.Fallback(0); !strings.HasPrefix(m.String(), "Fallback("); m++ {
		f := parsed(t, fmt.Sprintf(`{"a":{"fallback":%q}}`, m))
		if got := f.Settings()["a"].Fallback; got == nil || *got != m {
			t.Errorf("%v: %v", m, got)
		}
	}
}

// Each error names file, line, field and value. All errors of a file come together, in
// the order of its lines.
func TestViolations(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `limits.json:1 ("") is empty; a file without settings is {}`},
		{" \n\t\r\n", `limits.json:1 ("") is empty; a file without settings is {}`},
		{"\ufeff\n", `limits.json:1 ("") is empty; a file without settings is {}`},
		{"{\n \"a\": {\n", `limits.json:2 ("\"a\": {") cannot be read as JSON: unexpected end of JSON input`},
		{"{\n\n\"a\": {},\n}\n", `limits.json:4 ("}") cannot be read as JSON: invalid character '}' looking for beginning of object key string`},
		{"{}\n{}\n", `limits.json:2 ("{}") cannot be read as JSON: invalid character '{' after top-level value`},
		{"{}\n\ufeff", `limits.json:2 ("\ufeff") cannot be read as JSON: invalid character 'ï' after top-level value`},
		{"{\n// no comments\n}", `limits.json:2 ("// no comments") cannot be read as JSON: invalid character '/' looking for beginning of object key string`},
		{"{\n\"a\": \"\xff\"}", `limits.json:2 ("\"a\": \"\xff\"}") is not UTF-8`},
		{"{}\n\x00\x00", `limits.json:2 ("\x00\x00") has a NUL byte; the file is binary, or was not written to its end`},
		{"\xff\xfe{\x00}\x00", `limits.json:1 ("\xff\xfe{\x00}\x00") is UTF-16; it must be UTF-8`},
		{"\x7fELF\x02\x01", `limits.json:1 ("\x7fELF\x02\x01") cannot be read as JSON: invalid character '\x7f' looking for beginning of value`},
		{strings.Repeat("[", 9) + strings.Repeat("]", 9), `limits.json:1 ("[[[[[[[[[]]]]]]]]]") has more than 8 values inside each other`},
		{"{\n \"a\": \"" + strings.Repeat("x", 100), `limits.json:2 ("\"a\": \"` + strings.Repeat("x", 74) + `…") cannot be read as JSON: unexpected end of JSON input`},
		{"[]", `limits.json:1 (an array) must be an object`},
		{"\n null", `limits.json:2 (null) must be an object`},
		{`{"a b": {}}`, `limits.json:1: "a b" (an object) must have a name of the form [A-Za-z0-9_.-]{1,128}`},
		{"{\"api\":\n 7}", `limits.json:2: api (7) must be an object`},
		{"{\"api\": {\n\"limit\": 100}}", `limits.json:2: api.limit (100) must be a limit as text, such as "100/s burst 200"`},
		{"{\"api\": {\n\"limit\": \"100/q\"}}", `limits.json:2: api.limit ("100/q") cannot be read: expected a unit (s, min, h, d, week, month, year, ms, µs) or a duration such as 1m30s, got "q"`},
		{"{\"api\": {\n\"limit\": \"0/s\"}}", `limits.json:2: api.limit ("0/s") is not valid: Limit.Rate (0) must be at least 1`},
		{`{"api": {"limit": null}}`, `limits.json:1: api.limit (null) must be a limit as text, such as "100/s burst 200"`},
		{"{\"api\": {\"keys\": {\n\"partner-7\":\n\"gold\"}}}", `limits.json:3: api.keys.partner-7 ("gold") is neither a plan of the limiter nor a limit`},
		{`{"api": {"keys": {"k": "100 q"}}}`, `limits.json:1: api.keys.k ("100 q") cannot be read: expected "/", "per" or "concurrent" after a whole number, got "q"`},
		{`{"api": {"keys": {"": "1/s"}}}`, `limits.json:1: api.keys."" ("1/s") must not be the limit of an empty key`},
		{`{"api": {"keys": ["1/s"]}}`, `limits.json:1: api.keys (an array) must be an object`},
		{`{"api": {"keys": {"\ud800": "1/s"}}}`, `limits.json:1: api.keys."` + "\ufffd" + `" ("1/s") has a name with U+FFFD, which stands for a character that cannot be read`},
		{`{"api": {"plans": {"blocked": "1/s"}}}`, `limits.json:1: api.plans.blocked ("1/s") must have a name of the form [A-Za-z0-9_.-]{1,128} that is no limit itself`},
		{`{"api": {"plans": {"a/b": "1/s"}}}`, `limits.json:1: api.plans."a/b" ("1/s") must have a name of the form [A-Za-z0-9_.-]{1,128} that is no limit itself`},
		{`{"api": {"plans": {"a": "b", "b": "1/s"}}}`, `limits.json:1: api.plans.a ("b") cannot be read: expected a rate such as 100/s, "unlimited" or "blocked", got "b"`},
		{`{"api": {"shadow": "true"}}`, `limits.json:1: api.shadow ("true") must be true or false`},
		{`{"api": {"mode": "Strict"}}`, `limits.json:1: api.mode ("Strict") must be one of auto, strict, deferred, exact`},
		{`{"api": {"fallback": {}}}`, `limits.json:1: api.fallback (an object) must be one of share, full, allow_all, deny_all`},
		{"{\"api\": {\"limit\": \"1/s\",\n\"Limit\": \"2/s\"}}", `limits.json:2: api.Limit ("2/s") is not a field; the fields are limit, plans, keys, shadow, mode, fallback`},
		{"{\"api\": {\"limit\": \"1/s\",\n\"limit\": \"1/s\"}}", `limits.json:2: api.limit ("1/s") is a duplicate; the first is in line 1`},
		{"{\"api\": {},\n\n\"\\u0061pi\": {}}", `limits.json:3: api (an object) is a duplicate; the first is in line 1`},
		{"{\"api\": {\"keys\": {\"k\": \"1/s\",\n\"k\": \"1/s\"}}}", `limits.json:2: api.keys.k ("1/s") is a duplicate; the first is in line 1`},
		{
			"{\"api\": {\n\"keys\": {\"k\": \"1/s fixed window\", \"u\": \"unlimited\"},\n\"limit\": \"1/s\"}}",
			`limits.json:2: api.keys.k ("1/s fixed window") must have the algorithm of api.limit in line 3, token bucket`,
		},
		{
			"{\"api\": {\"limit\": \"blocked\", \"plans\": {\"p\": \"1/s leaky queue\"},\n\"keys\": {\"k\": \"1/s\"}}}",
			`limits.json:2: api.keys.k ("1/s") must have the algorithm of api.plans.p in line 1, leaky queue`,
		},
		{ // a key of a bad plan is no further error
			"{\"api\": {\"keys\": {\"k\": \"p\"},\n\"plans\": {\"p\": \"x\"}}}",
			`limits.json:2: api.plans.p ("x") cannot be read: expected a rate such as 100/s, "unlimited" or "blocked", got "x"`,
		},
		{
			"{\n\"api\": {\"shadow\": 1,\n\"limit\": \"x\",\n\"mode\": 2},\n\"b\": []}",
			"limits.json:2: api.shadow (1) must be true or false; " +
				`limits.json:3: api.limit ("x") cannot be read: expected a rate such as 100/s, "unlimited" or "blocked", got "x"; ` +
				"limits.json:4: api.mode (2) must be one of auto, strict, deferred, exact; limits.json:5: b (an array) must be an object",
		},
	} {
		f, err := limitfile.Parse("limits.json", []byte(c.text))
		if err == nil || f != nil || !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%q: %v, %v", c.text, f, err)
			continue
		}
		if got, want := err.Error(), "limitfile: "+c.want; got != want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, want)
		}
	}
}

// A file may have MaxSize bytes, and not one more.
func TestSize(t *testing.T) {
	text := "{}" + strings.Repeat(" ", limitfile.MaxSize-2)
	parsed(t, text)
	_, err := limitfile.Parse("limits.json", []byte(text+" "))
	if want := "limitfile: limits.json:1 (4194305 bytes) is longer than 4194304 bytes"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A hundred thousand keys fit, as the documentation says.
func TestManyKeys(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"api": {"plans": {"gold": "1000/s"}, "keys": {`)
	for i := range 100_000 {
		fmt.Fprintf(&b, "%q: \"gold\",\n", fmt.Sprintf("customer-%012d", i))
	}
	b.WriteString(`"last": "gold"}}}`)
	if f := parsed(t, b.String()); len(f.Settings()["api"].Keys) != 100_001 {
		t.Errorf("%d keys", len(f.Settings()["api"].Keys))
	}
}

// The check of a file stops after a hundred violations, wherever they are, and the error says so. A list of all needed
// a gigabyte for a file of a mebibyte.
func TestManyViolations(t *testing.T) {
	const n = 5000
	for name, text := range map[string]string{
		"duplicates": "{" + strings.Repeat("\"a b\": {},\n", n) + "\"a b\": {}}",
		"limiters":   numbered("{", "\"a%d\": 1,\n", "\"a\": {}}", n),
		"names":      numbered("{", "\"a %d\": {},\n", "\"a\": {}}", n),
		"fields":     numbered(`{"a": {`, "\"f%d\": 1,\n", `"limit": "1/s"}}`, n),
		"plans":      numbered(`{"a": {"plans": {`, "\"p%d\": 1,\n", `"p": "1/s"}}}`, n),
		"keys":       numbered(`{"a": {"keys": {`, "\"k%d\": 1,\n", `"k": "1/s"}}}`, n),
		"algorithms": numbered(`{"a": {"limit": "1/s", "keys": {`, "\"k%d\": \"1/s fixed window\",\n", `"k": "1/s"}}}`, n),
		"in each":    numbered("{", "\"a%d\": {\"mode\": 1},\n", "\"a\": {}}", n),
	} {
		_, err := limitfile.Parse("l", []byte(text))
		invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
		const last = "l (100 violations) are listed; the check of the file stopped after them; correct these first"
		if !ok || len(invalid.Violations) != 101 || !strings.HasSuffix(err.Error(), last) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

// A hundred violations are all: the check did not stop.
func TestAHundredViolations(t *testing.T) {
	_, err := limitfile.Parse("l", []byte(numbered("{", "\"a%d\": 1,\n", "\"a\": {}}", 100)))
	invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
	if !ok || len(invalid.Violations) != 100 || strings.Contains(err.Error(), "stopped") {
		t.Errorf("%v", err)
	}
}

// numbered returns a text of n parts with their numbers.
func numbered(before, part, after string, n int) string {
	var b strings.Builder
	b.WriteString(before)
	for i := range n {
		fmt.Fprintf(&b, part, i)
	}
	return b.String() + after
}
