package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// prepare checks that a version can be released, sets it in all modules, and prints what is left to do. It changes no
// tag and pushes nothing. An error that is about the version, the tree or the changelog comes before anything is
// changed.
func prepare(ctx context.Context, root, version string, out io.Writer, gate func(context.Context, string, io.Writer) error) error {
	all, err := modules(root)
	if err != nil {
		return err
	}
	if err := ready(ctx, root, version); err != nil {
		return err
	}
	if err := gate(ctx, root, out); err != nil {
		return err
	}
	changed, err := setVersion(root, version, all)
	if err != nil {
		return err
	}
	if err := check(ctx, root, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nTo release %s:\n\n", version)
	if len(changed) > 0 {
		fmt.Fprintf(out, "  git commit -m 'Release %s' %s\n", version, strings.Join(changed, " "))
	}
	var tags, pushes strings.Builder
	for _, m := range all {
		if m.released() {
			fmt.Fprintf(&tags, "  git tag %s\n", m.tag(version))
			fmt.Fprintf(&pushes, "  git push origin %s\n", m.tag(version))
		}
	}
	fmt.Fprintf(out, "%s  git push origin HEAD\n%s", tags.String(), pushes.String())
	return nil
}

// ready returns an error with each reason why a version cannot be released.
func ready(ctx context.Context, root, version string) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	valid := semver.IsValid(version) && semver.Canonical(version) == version
	switch {
	case !valid:
		bad("VERSION (%q) must be a version such as v0.1.0", version)
	case semver.Major(version) > "v1":
		bad("VERSION (%q) must be below v2, whose module path would end with %s", version, semver.Major(version))
	}
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		text, err := cmd.CombinedOutput()
		if err != nil {
			bad("git %s: %w: %s", args[0], err, text)
			return ""
		}
		return strings.TrimRight(string(text), "\n")
	}
	if dirty := git("status", "--porcelain"); dirty != "" {
		bad("the tree has changes that are not committed:\n%s", dirty)
	}
	for tag := range strings.Lines(git("tag", "--list", "v*")) {
		if tag = strings.TrimSpace(tag); valid && semver.IsValid(tag) && semver.Compare(tag, version) >= 0 {
			bad("VERSION (%q) must be above %s, which has a tag", version, tag)
		}
	}
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		bad("%w", err)
	}
	if first := regexp.MustCompile(`(?m)^## \[?([^\s\]]+)`).FindSubmatch(changes); valid && (first == nil || "v"+string(first[1]) != version) {
		have := "none"
		if first != nil {
			have = string(first[1])
		}
		bad("the first heading of CHANGELOG.md (%s) must be \"## %s\"", have, strings.TrimPrefix(version, "v"))
	}
	return errors.Join(errs...)
}

// setVersion makes all modules and go.work name the released modules by a version. It returns the files that it has
// changed.
func setVersion(root, version string, all []module) (changed []string, err error) {
	write := func(name string, old, text []byte) error {
		if bytes.Equal(old, text) {
			return nil
		}
		changed = append(changed, name)
		return os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), text, 0o644)
	}
	for i, m := range all {
		for _, other := range all {
			if other.released() && m.requires(other.path) {
				if err := m.file.AddRequire(other.path, version); err != nil {
					return changed, err
				}
			}
		}
		m.file.Cleanup()
		text, err := m.file.Format()
		if err != nil {
			return changed, err
		}
		if err := write(strings.TrimPrefix(m.dir+"/go.mod", "./"), m.text, text); err != nil {
			return changed, err
		}
		all[i].text = text
	}
	old, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return changed, err
	}
	work, err := modfile.ParseWork("go.work", old, nil)
	if err != nil {
		return changed, err
	}
	for _, r := range work.Replace {
		if err := work.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return changed, err
		}
	}
	work.Cleanup()
	for _, m := range all {
		if m.released() {
			if err := work.AddReplace(m.path, version, "./"+strings.TrimPrefix(m.dir, "."), ""); err != nil {
				return changed, err
			}
		}
	}
	work.Cleanup()
	return changed, write("go.work", old, modfile.Format(work.Syntax))
}
