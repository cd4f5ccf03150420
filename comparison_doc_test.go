package hybridlimit_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/comparison.md")

// rowsOf reads the first table after a text. It returns the first cell of each row, and
// the cells of each row by its first cell.
func rowsOf(t *testing.T, page, after string) (names []string, cells map[string][]string) {
	t.Helper()
	_, rest, ok := strings.Cut(page, after)
	if !ok {
		t.Fatalf("no %q", after)
	}
	cells = map[string][]string{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			if len(names) > 0 {
				break
			}
			continue
		}
		c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range c {
			c[i] = strings.TrimSpace(c[i])
		}
		names = append(names, c[0])
		cells[c[0]] = c
	}
	return names, cells
}

// speeds makes the table of decision times from bench/RESULTS.md.
func speeds(t *testing.T, results string) string {
	t.Helper()
	loads := []struct{ title, short string }{
		{"One hot key, far below its limit", "one hot key"},
		{"One hot key, over its limit", "the same, denied"},
		{"Zipf over 100 000 keys", "Zipf, 100 000 keys"},
		{"Uniform over 1 000 000 keys", "uniform, a million"},
		{"Twenty times the limit: 95 % denied", "20 keys, 20 times over"},
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| limiter |")
	for _, l := range loads {
		fmt.Fprintf(&b, " %s |", l.short)
	}
	fmt.Fprintf(&b, " bytes a key |\n|---|%s--:|\n", strings.Repeat("--:|", len(loads)))
	names, _ := rowsOf(t, results, "## "+loads[0].title+"\n")
	_, memory := rowsOf(t, results, "## Memory\n")
	for _, name := range names {
		if name == "limiter" || name == "nothing" || strings.HasPrefix(name, "---") {
			continue
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, l := range loads {
			_, cells := rowsOf(t, results, "## "+l.title+"\n")
			cell := "–"
			if row := cells[name]; len(row) > 1 {
				cell, _, _ = strings.Cut(row[1], " ±")
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		bytes := "–"
		if row := memory[name]; len(row) > 1 {
			bytes = row[1]
		}
		fmt.Fprintf(&b, " %s |\n", bytes)
	}
	return b.String()
}

// costs makes the table of costs for Redis from bench/REDIS.md.
func costs(t *testing.T, redis string) string {
	t.Helper()
	_, section, ok := strings.Cut(redis, "## A decision\n")
	if !ok {
		t.Fatal("bench/REDIS.md has no section of decisions")
	}
	var b strings.Builder
	b.WriteString("| limiter | decisions/s | messages/decision | Redis CPU, µs a decision | calls that were an error |\n|---|--:|--:|--:|--:|\n")
	rows := 0
	for line := range strings.Lines(section) {
		c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(c) < 9 || strings.TrimSpace(c[1]) != "one hot key" {
			continue
		}
		for i := range c {
			c[i] = strings.TrimSpace(c[i])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c[0], c[2], c[3], c[5], c[8])
		rows++
	}
	if rows < 3 {
		t.Fatalf("%d rows of one hot key in bench/REDIS.md", rows)
	}
	return b.String()
}

// between returns the text between a marker and its end, and the page with that text
// replaced.
func between(t *testing.T, page, marker, with string) (was, now string) {
	t.Helper()
	begin := strings.Index(page, marker+"\n")
	if begin < 0 {
		t.Fatalf("docs/comparison.md has no %q", marker)
	}
	begin += len(marker) + 1
	length := strings.Index(page[begin:], "<!-- end -->")
	if length < 0 {
		t.Fatalf("%q has no end", marker)
	}
	return strings.Trim(page[begin:begin+length], "\n"), page[:begin] + "\n" + with + "\n" + page[begin+length:]
}

// TestFiguresOfComparison checks that docs/comparison.md has the figures of the
// benchmarks. After make bench or make bench-redis, -update writes them.
func TestFiguresOfComparison(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("docs/comparison.md")
	for _, table := range []struct{ marker, want string }{
		{"<!-- from bench/RESULTS.md: go test -run Comparison . -update -->", speeds(t, read("bench/RESULTS.md"))},
		{"<!-- from bench/REDIS.md: go test -run Comparison . -update -->", costs(t, read("bench/REDIS.md"))},
	} {
		was, now := between(t, page, table.marker, table.want)
		if !*update && was != strings.TrimSpace(table.want) {
			t.Errorf("%s: the table has\n%s\nand the benchmark has\n%s", table.marker, was, table.want)
		}
		page = now
	}
	if *update {
		if err := os.WriteFile("docs/comparison.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestComparisonReadsTables checks rowsOf and between.
func TestComparisonReadsTables(t *testing.T) {
	const page = "## A\n\ntext\n\n| limiter | ns | x |\n|---|--:|--:|\n| **a** | 12 ± 3 % | 1 |\n\n| other | 9 |\n"
	names, cells := rowsOf(t, page, "## A\n")
	if strings.Join(names, ",") != "limiter,---,**a**" || cells["**a**"][1] != "12 ± 3 %" {
		t.Errorf("%q, %q", names, cells)
	}
	was, now := between(t, "a\n<!-- m -->\n\nold\n\n<!-- end -->\nb\n", "<!-- m -->", "new\n")
	if was != "old" || now != "a\n<!-- m -->\n\nnew\n\n<!-- end -->\nb\n" {
		t.Errorf("%q, %q", was, now)
	}
}
