package limitfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// step is a change of a file, with the state that follows.
type step struct {
	do   func(t *testing.T, path string)
	rate int64  // in force afterwards
	err  string // in Err; "": none
}

// to returns a step that writes a text in place.
func to(text string, rate int64, err string) step {
	return step{func(t *testing.T, path string) { write(t, path, text) }, rate, err}
}

// renamed returns a step that writes a new file and renames it over the old one.
func renamed(text string, rate int64) step {
	return step{func(t *testing.T, path string) {
		write(t, path+".new", text)
		must(t, os.Rename(path+".new", path))
	}, rate, ""}
}

// removed is a step after which the file is gone.
var removed = step{func(t *testing.T, path string) { must(t, os.Remove(path)) }, 100, "no such file or directory"}

// keepingTime returns a step that writes in place, and sets the time of the last write
// back to that before.
func keepingTime(text string, rate int64) step {
	return step{func(t *testing.T, path string) {
		before, err := os.Stat(path)
		must(t, err)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte(text), 0)
		must(t, err)
		must(t, f.Close())
		must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
		after, err := os.Stat(path)
		must(t, err)
		if !os.SameFile(before, after) || before.Size() != after.Size() || !before.ModTime().Equal(after.ModTime()) {
			t.Fatalf("a stat shows the change: %v, %v", before, after)
		}
	}, rate, ""}
}

// ways lists the ways to replace a file. Each begins with a rate of 100/s.
var ways = map[string][]step{
	"written in place":              {to(limits("200"), 200, ""), to(limits("3000"), 3000, "")},
	"same size and time of writing": {keepingTime(limits("200"), 200), keepingTime(limits("300"), 300)},
	"renamed over it":               {renamed(limits("200"), 200), renamed(limits("300"), 300)}, // Kuadrant/limitador#523
	"a link to another file": {{func(t *testing.T, path string) {
		write(t, path+".other", limits("200"))
		must(t, os.Remove(path))
		must(t, os.Symlink(path+".other", path))
	}, 200, ""}, {func(t *testing.T, path string) { write(t, path+".other", limits("300")) }, 300, ""}},
	"truncated":       {to(limits("200")[:20], 100, `limits.json:1 ("{\"api\": {\"limit\": \"2") cannot be read as JSON`), to(limits("200"), 200, "")},
	"empty":           {to("", 100, `limits.json:1 ("") is empty`), to(limits("200"), 200, "")},
	"the empty list":  {to("{}", 0, ""), to(limits("200"), 200, "")},
	"of MaxSize":      {to(limits("200")+strings.Repeat(" ", MaxSize-len(limits("200"))), 200, "")},
	"huge":            {to(limits("200")+strings.Repeat(" ", MaxSize), 100, "limits.json:1 (the file) is longer than 4194304 bytes"), to(limits("200"), 200, "")},
	"a hole of a TiB": {{func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<40)) }, 100, "is longer than 4194304 bytes"}, to(limits("200"), 200, "")},
	"binary":          {to("\x7fELF\x02\x01\x01\x00\x00", 100, "limits.json:1 (\"\\x7fELF\\x02\\x01\\x01\\x00\\x00\") has a NUL byte"), to(limits("200"), 200, "")},
	"NUL bytes after a crash": {
		to(string(bytes.Repeat([]byte{0}, len(limits("100")))), 100, "limits.json:1 (\"\\x00"),
		to(limits("200"), 200, ""),
	},
	"with a BOM":        {to("\ufeff"+limits("200"), 200, "")},
	"UTF-16":            {to("\xff\xfe{\x00}\x00", 100, "is UTF-16; it must be UTF-8")},
	"duplicate keys":    {to("{\"api\": {\"limit\": \"200/s\",\n\"limit\": \"300/s\"}}", 100, `limits.json:2: api.limit ("300/s") is a duplicate; the first is in line 1`)},
	"an unknown field":  {to("{\"api\": {\"limit\": \"200/s\",\n\"burst\": 5}}", 100, `limits.json:2: api.burst (5) is not a field`)},
	"unknown algorithm": {to("{\"api\": {\n\n\"limit\": \"200/s magic\"}}", 100, `limits.json:3: api.limit ("200/s magic") cannot be read: expected "burst" or an algorithm`)},
	"text after it":     {to(limits("200")+"\n"+limits("300"), 100, `limits.json:2 (`)},
	"gone and back":     {removed, to(limits("100"), 100, ""), removed, to(limits("200"), 200, "")},
	"a directory in its place": {
		removed,
		{func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o755)) }, 100, "is not a regular file, but a directory"},
		{func(t *testing.T, path string) { must(t, os.Remove(path)); write(t, path, limits("200")) }, 200, ""},
	},
	"its directory gone and back": {
		{func(t *testing.T, path string) { must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old")) }, 100, "no such file or directory"},
		{func(t *testing.T, path string) {
			must(t, os.Rename(filepath.Dir(path)+".old", filepath.Dir(path)))
			write(t, path, limits("200"))
		}, 200, ""},
	},
	"a circle of links": {
		removed,
		{func(t *testing.T, path string) { must(t, os.Symlink(path, path)) }, 100, "too many levels of symbolic links"},
		{func(t *testing.T, path string) { must(t, os.Remove(path)); write(t, path, limits("200")) }, 200, ""},
	},
	"invalid twice": {to("[]", 100, "limits.json:1 (an array) must be an object"), to("7", 100, "limits.json:1 (7) must be an object"), to(limits("200"), 200, "")},
}

// Each way to replace a file has its effect with the next read. While the file is
// invalid, the settings before stay in force.
func TestWaysToReplaceAFile(t *testing.T) {
	for name, steps := range ways {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { replay(t, begun(t, limits("100")), steps) })
		})
	}
}

// replay takes the steps. The hub is called exactly once for each change of the rate.
func replay(t *testing.T, r *rig, steps []step) {
	t.Helper()
	rate, want := int64(100), 1
	check := func(i int, s step) {
		t.Helper()
		got, calls := r.hub.rate()
		if got != s.rate || calls != want || r.File().Settings()["api"].Limit.Rate != s.rate {
			t.Errorf("step %d: rate %d after %d calls, want %d after %d", i, got, calls, s.rate, want)
		}
		switch err := r.Err(); {
		case s.err == "" && err != nil, s.err != "" && err == nil, err != nil && !strings.Contains(err.Error(), s.err):
			t.Errorf("step %d: error %v, want %q", i, err, s.err)
		case err != nil && !strings.Contains(err.Error(), r.path):
			t.Errorf("step %d: the error does not name the file: %v", i, err)
		}
	}
	check(0, step{rate: 100})
	for i, s := range steps {
		s.do(t, r.path)
		if s.rate != rate {
			rate = s.rate
			want++
		}
		for range 2 { // also the read after that
			r.settled()
			check(i+1, s)
		}
	}
}

// A ConfigMap: the file is a link through the link ..data, which is swapped.
func TestConfigMap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		swap := func(t *testing.T, version, text string) {
			t.Helper()
			must(t, os.Mkdir(filepath.Join(dir, version), 0o755))
			write(t, filepath.Join(dir, version, "limits.json"), text)
			must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
			must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		}
		swap(t, "..2026_01", limits("100"))
		path := filepath.Join(dir, "limits.json")
		must(t, os.Symlink(filepath.Join("..data", "limits.json"), path))
		replay(t, start(t, path, readFile), []step{
			{func(t *testing.T, _ string) {
				swap(t, "..2026_02", limits("200"))
				must(t, os.RemoveAll(filepath.Join(dir, "..2026_01")))
			}, 200, ""},
			{func(t *testing.T, _ string) { must(t, os.RemoveAll(filepath.Join(dir, "..2026_02"))) }, 200, "no such file or directory"},
			{func(t *testing.T, _ string) { swap(t, "..2026_03", limits("300")) }, 300, ""},
		})
	})
}
