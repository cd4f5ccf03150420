package docs

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// TestLimitsInTheDocumentation checks the texts of limits in docs/limits.md and their
// meanings.
func TestLimitsInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(page), "```limits\n")
	list, _, closed := strings.Cut(list, "```")
	if !found || !closed || list == "" {
		t.Fatal("there is no list of limits")
	}
	for line := range strings.Lines(list) {
		text, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		got, err := hybridlimit.ParseLimit(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %v and %v, want %s", text, got, err, want)
		}
		var back hybridlimit.Limit
		if text, err := got.MarshalText(); err != nil || back.UnmarshalText(text) != nil || back != got {
			t.Errorf("%v is written as %q (%v), which is read as %v", got, text, err, back)
		}
	}
}

// TestNGINXInTheDocumentation checks the rows of the NGINX table with 30 simultaneous
// calls each.
func TestNGINXInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		row    string // of the page
		limit  string // the limit of the row
		free   int    // calls that are not delayed
		once   int    // calls that are served at once
		last   time.Duration
		denied int
	}{
		{"| `rate=10r/s` | `10/s burst 1 leaky bucket` | 1 served, 29 denied |", "10/s burst 1 leaky bucket", 0, 1, 0, 29},
		{
			"| `rate=10r/s`, `burst=20` | `10/s burst 21 leaky queue`, wait for `Delay` | 1 at once, 20 more at 100 ms, 200 ms, … 2 s; 9 denied |",
			"10/s burst 21 leaky queue", 0, 1, 2 * time.Second, 9,
		},
		{
			"| `rate=10r/s`, `burst=20 nodelay` | `10/s burst 21 leaky bucket` (or token bucket: the same calls) | 21 at once, 9 denied |",
			"10/s burst 21 leaky bucket", 0, 21, 0, 9,
		},
		{"(or token bucket: the same calls)", "10/s burst 21", 0, 21, 0, 9},
		{
			"| `rate=10r/s`, `burst=20 delay=8` | `10/s burst 21 leaky queue`, wait for `Delay` less 8 calls | 9 at once, 12 more at 100 ms, … 1.2 s; 9 denied |",
			"10/s burst 21 leaky queue", 8, 9, 1200 * time.Millisecond, 9,
		},
	} {
		if !strings.Contains(string(page), tc.row) {
			t.Errorf("the page has no row %q", tc.row)
		}
		synctest.Test(t, func(t *testing.T) {
			limit, err := hybridlimit.ParseLimit(tc.limit)
			if err != nil {
				t.Fatal(err)
			}
			l, err := local.New(limit, local.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			each := limit.Period / time.Duration(limit.Rate)
			once, denied, next := 0, 0, each
			for range 30 {
				res, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				switch wait := max(0, res.Delay-time.Duration(tc.free)*each); {
				case !res.Allowed:
					denied++
				case wait == 0:
					once++
				case wait != next:
					t.Errorf("%s: a call waits %v, want %v", tc.limit, wait, next)
				default:
					next += each
				}
			}
			if once != tc.once || denied != tc.denied || next-each != tc.last {
				t.Errorf("%s: %d at once, the last after %v, %d denied; want %d, %v, %d", tc.limit, once, next-each, denied, tc.once, tc.last, tc.denied)
			}
		})
	}
}

// TestNGINXProgramInTheDocumentation checks that the program of the page is part of an
// example, which go test runs.
func TestNGINXProgramInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("local/nginx_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## As in NGINX\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := strings.Split(section, "```go\n")[1:]
	if len(blocks) != 1 {
		t.Errorf("%d programs", len(blocks))
	}
	for _, block := range blocks {
		program, _, _ := strings.Cut(block, "```")
		indented := "\t\t" + strings.ReplaceAll(strings.TrimSpace(program), "\n", "\n\t\t")
		if !strings.Contains(string(example), indented) {
			t.Errorf("no example has\n%s", indented)
		}
	}
}
