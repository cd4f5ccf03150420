package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes a repository of a root module, a nested one that requires it, and one that is not released.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module example.com/lib\n\ngo 1.26\n",
		"lib.go":               "package lib\n",
		"extra/go.mod":         "module example.com/lib/extra\n\ngo 1.26\n\nrequire example.com/lib v0.1.0\n",
		"examples/demo/go.mod": "module example.com/lib/examples/demo\n\ngo 1.26\n\nrequire (\n\texample.com/lib v0.1.0\n\texample.com/lib/extra v0.1.0\n)\n",
		"go.work":              "go 1.26\n\nuse (\n\t.\n\t./extra\n\t./examples/demo\n)\n\nreplace example.com/lib v0.1.0 => ./\n",
		"CHANGELOG.md":         "# Changelog\n\n## 0.2.0 (unreleased)\n\n## 0.1.0\n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, root, "init", "-q")
	git(t, root, "add", "-A")
	git(t, root, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "begin")
	git(t, root, "tag", "v0.1.0")
	return root
}

func git(t *testing.T, root string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// A version that cannot be released is refused with each reason, before the gate runs and before anything changes.
func TestRefusedReleases(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		spoil   func(root string)
		wants   []string
	}{
		"no version":       {"", nil, []string{`VERSION ("") must be a version such as v0.1.0`}},
		"without v":        {"0.2.0", nil, []string{`VERSION ("0.2.0") must be a version`}},
		"short":            {"v0.2", nil, []string{`VERSION ("v0.2") must be a version`}},
		"another path":     {"v2.0.0", nil, []string{`VERSION ("v2.0.0") must be below v2`, `the first heading of CHANGELOG.md (0.2.0) must be "## 2.0.0"`}},
		"has a tag":        {"v0.1.0", nil, []string{`VERSION ("v0.1.0") must be above v0.1.0, which has a tag`, `must be "## 0.1.0"`}},
		"no heading":       {"v0.3.0", nil, []string{`the first heading of CHANGELOG.md (0.2.0) must be "## 0.3.0"`}},
		"no changelog":     {"v0.2.0", func(root string) { os.Remove(filepath.Join(root, "CHANGELOG.md")) }, []string{"CHANGELOG.md", "not committed"}},
		"a dirty tree":     {"v0.2.0", func(root string) { os.WriteFile(filepath.Join(root, "x.go"), nil, 0o644) }, []string{"the tree has changes that are not committed:\n?? x.go"}},
		"all at once":      {"v0.0.1", func(root string) { os.WriteFile(filepath.Join(root, "x.go"), nil, 0o644) }, []string{"not committed", "must be above v0.1.0", "the first heading"}},
		"its gate is red":  {"v0.2.0", nil, []string{"the gate is red"}},
		"not a repository": {"v0.2.0", func(root string) { os.RemoveAll(filepath.Join(root, ".git")) }, []string{"git status"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := repository(t)
			if c.spoil != nil {
				c.spoil(root)
			}
			before, _ := os.ReadFile(filepath.Join(root, "extra", "go.mod"))
			gated := false
			err := prepare(t.Context(), root, c.version, io.Discard, func(context.Context, string, io.Writer) error {
				gated = true
				return errors.New("the gate is red")
			})
			for _, want := range c.wants {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			if gated != (name == "its gate is red") {
				t.Errorf("the gate has run: %v", gated)
			}
			if after, _ := os.ReadFile(filepath.Join(root, "extra", "go.mod")); !bytes.Equal(after, before) {
				t.Errorf("go.mod has changed to\n%s", after)
			}
		})
	}
}

// The version is set in all modules and in go.work. Modules that are not released have no tag. The root's tag comes first.
func TestSetVersion(t *testing.T) {
	root := repository(t)
	all, err := modules(root)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := setVersion(root, "v0.2.0", all)
	if err != nil || len(changed) != 3 {
		t.Fatalf("%q, %v", changed, err)
	}
	for name, want := range map[string]string{
		"extra/go.mod": "example.com/lib v0.2.0", "examples/demo/go.mod": "example.com/lib/extra v0.2.0",
		"go.work": "replace example.com/lib v0.2.0 => ./\n\nreplace example.com/lib/extra v0.2.0 => ./extra\n",
	} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "v0.1.0") {
			t.Errorf("%s: no %q in\n%s (%v)", name, want, text, err)
		}
	}
	if all, err = modules(root); err != nil {
		t.Fatal(err)
	}
	if v, err := version(all); v != "v0.2.0" || err != nil {
		t.Errorf("%s, %v", v, err)
	}
	var tags []string
	for _, m := range all {
		if m.released() {
			tags = append(tags, m.tag("v0.2.0"))
		}
	}
	if got := strings.Join(tags, " "); got != "v0.2.0 extra/v0.2.0" {
		t.Errorf("tags: %s", got)
	}
	if changed, err := setVersion(root, "v0.2.0", all); err != nil || len(changed) != 0 {
		t.Errorf("again: %q, %v", changed, err)
	}
}

// A replace, and modules that do not agree on a version, are found.
func TestVersionsThatNobodyCanUse(t *testing.T) {
	for text, want := range map[string]string{
		"module example.com/lib/extra\n\nrequire example.com/lib v0.1.0\n\nreplace example.com/lib => ../\n":               "extra/go.mod replaces example.com/lib: go.work does that",
		"module example.com/lib/extra\n\nrequire example.com/lib v0.0.0\n":                                                 "by several versions",
		"module example.com/lib/extra\n\nrequire (\n\texample.com/lib v0.1.0\n\texample.com/lib/examples/demo v0.1.0\n)\n": "requires example.com/lib/examples/demo, which is not released",
	} {
		root := repository(t)
		if err := os.WriteFile(filepath.Join(root, "extra", "go.mod"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		all, err := modules(root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := version(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
