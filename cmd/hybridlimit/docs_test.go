package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words splits a line as a shell does, with quotes and a comment at the end.
func words(line string) (out []string) {
	var b strings.Builder
	quote, in := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == '#' && !in:
			return out
		case r == ' ':
			if in {
				out = append(out, b.String())
			}
			b.Reset()
			in = false
		default:
			b.WriteRune(r)
			in = true
		}
	}
	if in {
		out = append(out, b.String())
	}
	return out
}

// The commands in the documents have valid arguments: without Redis they fail with
// status 1, not 2.
func TestLinesOfTheDocuments(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md", "../../SECURITY.md", "main.go")
	lines := regexp.MustCompile("(?m)(?:^(?:\\$ |//\t|go run github\\.com/hybridlimit/hybridlimit/cmd/)|`)hybridlimit(?:@latest)? ((?:list|inspect|reset|switch|limit|top) [^`\\n]*-name[^`\\n]*|(?:check|key|periods) [^`\\n]*|version|completion [a-z]+)")
	seen := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lines.FindAllStringSubmatch(string(text), -1) {
			line := strings.NewReplacer("[normal|shadow|local_only|allow_all|deny_all]", "shadow", "[-name api]", "-name api", "[-by busiest|emptiest|running]", "-by busiest", "-user alice [\"200/s burst 400\"]", "-user alice \"200/s burst 400\"", "[-part 0.1] [\"200/s burst 400\"]", "-part 0.1 \"200/s burst 400\"").Replace(m[1])
			args := slices.DeleteFunc(words(line), func(w string) bool { return strings.HasPrefix(w, "<") })
			if at := slices.Index(args, "-redis"); at >= 0 {
				args[at+1] = "redis://127.0.0.1:1"
			}
			seen[args[0]]++
			offline := slices.Contains([]string{"key", "periods", "version", "completion"}, args[0])
			status, out, errOut := cliWith(t, "redis://127.0.0.1:1", "an API key\n", args...)
			if want := map[bool]int{false: 1}[offline]; status != want || (out != "") != offline {
				t.Errorf("%s: %q: status %d, %s", page, args, status, errOut)
			}
		}
	}
	for _, c := range commands {
		if seen[c.name] == 0 {
			t.Errorf("no line shows %s: %v", c.name, seen)
		}
	}
	if got := words(`top -limit '100/min  a' "b#" c#d   # text 'x`); !slices.Equal(got, []string{"top", "-limit", "100/min  a", "b#", "c#d"}) {
		t.Errorf("words: %q", got)
	}
}
