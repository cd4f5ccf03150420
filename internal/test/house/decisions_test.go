package house

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	// record matches the file of a decision.
	record = regexp.MustCompile(`^\d{4}-.*\.md$`)
	// status matches the status line of a record.
	status = regexp.MustCompile(`(?m)^Status: (in force|in force, except .+|replaced by .*\d{4}.*)$`)
	// row matches a row of the index: file, decision, status.
	row = regexp.MustCompile(`(?m)^\| \[\d{4}\]\((.*?)\) \| (.*?) \| (.*) \|$`)
	// link matches a link to a record.
	link = regexp.MustCompile(`\[(\d{4})\]\((.*?)\)`)
	// number matches the number of a record.
	number = regexp.MustCompile(`\b\d{4}\b`)
)

// TestDecisionsAreIndexed: nobody finds a decision that the index lacks, and all follow one that it calls in force.
func TestDecisionsAreIndexed(t *testing.T) {
	bad, err := checkDecisions(os.DirFS(path.Join(moduleRoot(t), "docs", "decisions")))
	if err != nil {
		t.Fatal(err)
	}
	report(t, bad)
}

// checkDecisions compares the index in README.md with the records beside it.
func checkDecisions(fsys fs.FS) (bad []string, err error) {
	index, err := fs.ReadFile(fsys, "README.md")
	if err != nil {
		return nil, err
	}
	rows := map[string]string{} // status by file
	for _, m := range row.FindAllStringSubmatch(string(index), -1) {
		if _, twice := rows[m[1]]; twice {
			bad = append(bad, m[1]+" has two rows in the index")
		}
		if n := len(strings.Fields(m[2])); n > 12 {
			bad = append(bad, fmt.Sprintf("the row of %s has %d words, at most 12 are allowed", m[1], n))
		}
		rows[m[1]] = m[3]
	}
	files, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := f.Name()
		if !record.MatchString(name) || strings.HasPrefix(name, "0000-") {
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		said, indexed := rows[name]
		delete(rows, name)
		m := status.FindStringSubmatch(string(text))
		switch {
		case m == nil:
			bad = append(bad, name+` has no line "Status: in force", "in force, except the part (NNNN)" or "replaced by NNNN"`)
			continue
		case !indexed:
			bad = append(bad, name+" has no row in the index")
		case said != short(m[1]):
			bad = append(bad, fmt.Sprintf("%s is %q, and its row says %q", name, short(m[1]), said))
		}
		for _, l := range link.FindAllStringSubmatch(m[1], -1) {
			if _, err := fs.Stat(fsys, l[2]); err != nil || !strings.HasPrefix(l[2], l[1]) {
				bad = append(bad, name+" links "+l[2]+", which is not that record")
			}
		}
	}
	for name := range rows {
		bad = append(bad, name+" has a row, and no record")
	}
	return bad, nil
}

// short returns the status of a record as its row says it: with the numbers of the records that replace it, or a part of it.
func short(status string) string {
	by := strings.Join(number.FindAllString(link.ReplaceAllString(status, "$1"), -1), ", ")
	switch {
	case strings.HasPrefix(status, "replaced"):
		return "replaced by " + by
	case by != "":
		return "in force, in part replaced by " + by
	case status != "in force":
		return "in force, in part changed"
	}
	return status
}

func TestWrongIndexIsReported(t *testing.T) {
	record := func(status string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("# a\n\nStatus: " + status + "\n")}
	}
	bad, err := checkDecisions(fstest.MapFS{
		"0000-template.md": record("anything"),
		"0001-a.md":        record("in force"),
		"0002-b.md":        record("replaced by [0004](0004-d.md)"),
		"0003-c.md":        record("in force, except names ([0004](0004-d.md)) and keys (0001)"),
		"0004-d.md":        record("accepted"),
		"0005-e.md":        record("in force"),
		"0006-f.md":        record("replaced by [0007](0001-a.md)"),
		"0007-g.md":        record("replaced by [0001](0001-a.md)"),
		"0009-i.md":        record("in force, except names"),
		"README.md": {Data: []byte("| [0001](0001-a.md) | one two | in force |\n" +
			"| [0002](0002-b.md) | 1 2 3 4 5 6 7 8 9 10 11 12 13 | replaced by 0004 |\n" +
			"| [0003](0003-c.md) | c | in force, in part replaced by 0004, 0001 |\n" +
			"| [0004](0004-d.md) | d | accepted |\n" +
			"| [0006](0006-f.md) | f | replaced by 0007 |\n" +
			"| [0007](0007-g.md) | g | in force |\n| [0007](0007-g.md) | g | in force |\n" +
			"| [0008](0008-h.md) | h | in force |\n| [0009](0009-i.md) | i | in force, in part changed |\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, bad, "0002-b.md has 13 words", "0007-g.md has two rows", "0004-d.md has no line", "0005-e.md has no row", "0006-f.md links 0001-a.md", `0007-g.md is "replaced by 0001"`, "0008-h.md has a row")
}
