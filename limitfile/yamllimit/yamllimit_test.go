package yamllimit_test

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/limitfile"
	"github.com/hybridlimit/hybridlimit/limitfile/yamllimit"
)

const full = `# The limits of the shop.
api:
  limit: 100/s burst 200
  keys: {partner-7: 500/s, partner-8: gold, 007: gold, "no": blocked, 1.50: gold}
  plans:
    gold: "1000/s burst 3000"
  shadow: True
  mode: strict
  fallback: deny_all
login:
  limit: 5/min
plain: {}
`

const fullJSON = `{
  "api": {
    "limit": "100/s burst 200",
    "keys": {"partner-7": "500/s", "partner-8": "gold", "007": "gold", "no": "blocked", "1.50": "gold"},
    "plans": {"gold": "1000/s burst 3000"},
    "shadow": true, "mode": "strict", "fallback": "deny_all"
  },
  "login": {"limit": "5/min"},
  "plain": {}
}`

// A file in YAML is the same as one in JSON. JSON is YAML too.
func TestParse(t *testing.T) {
	want, err := limitfile.Parse("limits.json", []byte(fullJSON))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{full, "\ufeff" + full, "---\n" + full + "...\n", strings.ReplaceAll(full, "\n", "\r\n"), fullJSON} {
		f, err := yamllimit.Parse("limits.yaml", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if f.String() != want.String() || !reflect.DeepEqual(f.Settings(), want.Settings()) || f.Name() != "limits.yaml" {
			t.Errorf("%s is %s, want %s", text, f, want)
		}
	}
}

func TestViolations(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `limits.yaml:1 ("") is empty; a file without settings is {}`},
		{"# a comment\n", `limits.yaml:1 ("the file") has only comments; a file without settings is {}`},
		{"---\n", `limits.yaml:2 (null) must be an object`},
		{"a: {}\n---\nb: {}\n", `limits.yaml:2 ("---") begins a second document; a file has one`},
		{"a:\n  limit: 1/s\n b: {}\n", `limits.yaml:3 ("YAML") cannot be read: did not find expected key`},
		{"a:\n\tlimit: 1/s\n", `limits.yaml:2 ("YAML") cannot be read: found character that cannot start any token`},
		{"api:\n  limit: 100\n", `limits.yaml:2: api.limit (100) must be a limit as text, such as "100/s burst 200"`},
		{"api:\n  limit:\n", `limits.yaml:2: api.limit (null) must be a limit as text, such as "100/s burst 200"`},
		{"api:\n  shadow: yes\n", `limits.yaml:2: api.shadow ("yes") must be true or false`},
		{"api:\n  limit: 1/s\n  limit: 2/s\n", `limits.yaml:3: api.limit ("2/s") is a duplicate; the first is in line 2`},
		{"api:\n  keys:\n    - 1/s\n", `limits.yaml:3: api.keys (a sequence) must be an object`},
		{"api: &x\n  limit: 1/s\nlogin: *x\n", `limits.yaml:3: login (*x, an alias) must be an object`},
		{"api: &x\n  limit: 1/s\nlogin:\n  <<: *x\n", `limits.yaml:4: login."<<" (*x, an alias) is not a field; the fields are limit, plans, keys, shadow, mode, fallback`},
		{"api:\n  limit: !!str 1/s\n", `limits.yaml:2: api.limit (!!str 1/s) must be a limit as text, such as "100/s burst 200"`},
		{"api: !x\n  limit: 1/s\n", `limits.yaml:1: api (a mapping with the tag !x) must be an object`},
		{"api:\n  ? [a]\n  : 1/s\n", `limits.yaml:2 ("the name") must be plain text, without a tag or an alias`},
		{"a: {a: {a: {a: {a: {a: {a: {a: {a: {}}}}}}}}}", `limits.yaml:1 ("the value") has more than 8 values around it`},
		{
			"api:\n  limit: 1/q\n\n  mode: 1\n",
			`limits.yaml:2: api.limit ("1/q") cannot be read: expected a unit (s, min, h, d, week, month, year, ms, µs) or a duration such as 1m30s, got "q"; limits.yaml:4: api.mode (1) must be one of auto, strict, deferred, exact`,
		},
	} {
		f, err := yamllimit.Parse("limits.yaml", []byte(c.text))
		if err == nil || f != nil || !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%q: %v, %v", c.text, f, err)
			continue
		}
		if got, want := err.Error(), "limitfile: "+c.want; got != want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, want)
		}
	}
}

// Aliases cannot make a small file large: they are not followed.
func TestManyLaughs(t *testing.T) {
	text := "a: &a {}\n"
	for i := range 30 {
		text += fmt.Sprintf("x%d: &x%d {l: *a, m: *a}\n", i, i)
	}
	_, err := yamllimit.Parse("limits.yaml", []byte(text))
	if invalid, ok := errors.AsType[*hybridlimit.InvalidError](err); !ok || len(invalid.Violations) != 60 {
		t.Errorf("%v", err)
	}
}

// A file of many short values is refused before the parser makes a tree of it. It needed 467 MiB.
func TestManyValues(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"in a line": {
			"{" + strings.Repeat("x, ", 1<<20/3) + "}",
			`limits.yaml:1 ("YAML") has about 699052 values in one line; the most are 32768, or one for each 8 bytes of a longer line`,
		},
		"in lines": {
			"# names\n" + strings.Repeat("x:\n", 1<<20/3),
			`limits.yaml:131074 ("YAML") has more than 262145 values up to this line, the most in a file of its length`,
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := yamllimit.Parse("limits.yaml", []byte(c.text))
		runtime.ReadMemStats(&after)
		if err == nil || err.Error() != "limitfile: "+c.want {
			t.Errorf("%s: %v", name, err)
		}
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 8 {
			t.Errorf("%s: %d MiB", name, mib)
		}
	}
}

// The largest files with one limit a line fit.
func TestLargestFile(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < limitfile.MaxSize/4; i++ {
		fmt.Fprintf(&b, "a%d: {limit: 1/s}\n", i)
	}
	if f, err := yamllimit.Parse("limits.yaml", []byte(b.String())); err != nil || len(f.Limiters()) < 50_000 {
		t.Errorf("%.200v", err)
	}
}

// place begins each violation: the file and a line of it.
var place = regexp.MustCompile(`(?s)^limits\.yaml:[1-9][0-9]*(: .+)?$`)

// Parse returns an error with a line, or a file that reads the same in JSON.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		full, fullJSON, "", "#", "{}", "a: *b", "a: &b [*b]", "? {}\n: {}", "a:\n  keys: {~: 1/s, : 1/s}\n", "%YAML 1.2\n---\na: {}", "a: |\n  b", "- - - - - - - - - - - a",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := yamllimit.Parse("limits.yaml", data)
		if err != nil {
			invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
			if !ok || file != nil {
				t.Fatalf("%v, %v", file, err)
			}
			for i, v := range invalid.Violations {
				if !place.MatchString(v.Field) && i < 100 {
					t.Errorf("%q names no line: %v", v.Field, err)
				}
			}
			return
		}
		again, err := limitfile.Parse("limits.yaml", []byte(file.String()))
		if err != nil || !reflect.DeepEqual(file.Settings(), again.Settings()) || file.String() != again.String() {
			t.Fatalf("%s became %v: %v", file, again, err)
		}
	})
}

func ExampleParse() {
	f, err := yamllimit.Parse("limits.yaml", []byte("api:\n  limit: 100/s burst 200\n  mode: strict\n"))
	fmt.Println(f.Settings()["api"].Limit, err)
	_, err = yamllimit.Parse("limits.yaml", []byte("api:\n  limit: 100\n"))
	fmt.Println(err)
	// Output:
	// 100 per 1s, burst 200 (token bucket) <nil>
	// limitfile: limits.yaml:2: api.limit (100) must be a limit as text, such as "100/s burst 200"
}
