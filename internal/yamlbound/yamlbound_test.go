package yamlbound

import (
	"fmt"
	"strings"
	"testing"
)

const size = 1 << 20

// filled returns a text of about size bytes of parts, which begin to repeat after n.
func filled(before, part, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < size; i++ {
		if strings.Contains(part, "%d") {
			fmt.Fprintf(&b, part, i)
		} else {
			b.WriteString(part)
		}
	}
	return b.String() + after
}

// Files of many short values are not read. A parser made 467 MiB of a mebibyte of "x, ".
func TestProblem(t *testing.T) {
	const (
		inLine = "values in one line; the most are 32768, or one for each 8 bytes of a longer line"
		inFile = " values up to this line, the most in a file of its length"
	)
	for _, c := range []struct{ name, text, want string }{
		{"names", filled("{", "x, ", "}"), inLine},
		{"dense names", filled("{", "x,", "}"), inLine},
		{"pairs", filled("[", "a: b,", "]"), inLine},
		{"different names", filled("{", "a%d: x, ", "}"), inLine},
		{"colons", filled("[", ":,", "]"), inLine},
		{"complex names", filled("[", "?,", "]"), inLine},
		{"commas", filled("{", ",", "}"), inLine},
		{"objects", filled("[", "{},", "]"), inLine},
		{"deep lists", filled("", "[", ""), inLine},
		{"deep lists in a block", filled("", "- ", ""), inLine},
		{"deep names", filled("", "? ", ""), inLine},
		{"tags", filled("[", "!!str x,", "]"), inLine},
		{"anchors", filled("[", "&a x,", "]"), inLine},
		{"aliases", filled("a: &a x\nb: [", "*a,", "]"), inLine},
		{"a quotation mark", filled("\" \" : {", "x, ", "}"), inLine},
		{"comments in a quoted text", filled("{ \"\n", "#\", x, x, \"\n", "\"}"), inFile},
		{"lines", filled("{\n", "x,\n", "}"), inFile},
		{"old lines", filled("{\r", "x,\r", "}"), inFile},
		{"a list", filled("", "- x\n", ""), inFile},
		{"a list of null", filled("", "-\n", ""), inFile},
		{"the same name", filled("", "a: 1\n", ""), inFile},
		{"directives", filled("", "%%TAG !a%d! x\n", "---\n{}\n"), "has more than 100 lines that begin with %"},
	} {
		if _, problem := Problem([]byte(c.text), 8); !strings.Contains(problem, c.want) {
			t.Errorf("%s: %q, want %q", c.name, problem, c.want)
		}
	}
}

// The line is that in which the bound is exceeded, for each kind of line end.
func TestLine(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		text := "a: 1" + end + end + "{" + strings.Repeat("x,", size) + "}" + end
		if line, problem := Problem([]byte(text), 8); line != 3 || problem == "" {
			t.Errorf("%q: line %d, %q", end, line, problem)
		}
	}
}

// Large files of limits keep to the bounds.
func TestNoProblem(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           "",
		"limiters":          filled("", "a%d: {limit: 1/s}\n", ""),
		"keys":              filled("api:\n  limit: 1/s\n  keys:\n", "    partner-%d: 500/s\n", ""),
		"short keys":        filled("api:\n  keys:\n", "    k%d: 5/s\n", ""),
		"JSON":              filled(`{"api": {"keys": {`, `"partner-%d":"500/s",`, `"x": "1/s"}}}`),
		"JSON in lines":     filled("{\"api\": {\"keys\": {\n", "\"k%d\":\"5/s\",\n", "\"x\": \"1/s\"}}}\n"),
		"addresses":         filled("api:\n  keys:\n", "    2001:db8:0:0:0:0:0:%d: 5/s\n", ""),
		"quoted addresses":  filled("api:\n  keys:\n", "    \"2001:db8::%d\": 5/s\n", ""),
		"descriptors":       filled("domain: d\ndescriptors:\n", "- key: k%d\n", ""),
		"rules":             filled("domain: d\ndescriptors:\n", "- key: k%d\n  rate_limit: {unit: day, name: abcdefghijk}\n", ""),
		"rules in a line":   filled("[", "{key: k%d, rate_limit: {unit: day, requests_per_unit: 5}}, ", "]"),
		"comments":          filled("", "  # one, two, and three\n", "{}"),
		"empty comments":    filled("", "#\n", "{}"),
		"a long text":       filled("a: \"", "x", "\""),
		"a block":           filled("a: |\n", "  some text\n", ""),
		"empty lines":       filled("", "\n", "{}"),
		"a small dense one": "{" + strings.Repeat("x,", 1000) + "}",
	} {
		inLine := 8
		if name == "rules in a line" {
			inLine = BytesPerValue
		}
		if line, problem := Problem([]byte(text), inLine); problem != "" {
			t.Errorf("%s: line %d: %s", name, line, problem)
		}
	}
}
