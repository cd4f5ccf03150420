package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// module is a module of the repository.
type module struct {
	dir  string // below the root, with slashes; "." for the root
	path string
	file *modfile.File
	text []byte // of go.mod
}

// tag returns the tag of a version of the module.
func (m module) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}

// modules returns all modules of a repository, each after those that it requires.
func modules(root string) (all []module, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.Name() != "go.mod" || d.IsDir():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		all = append(all, module{filepath.ToSlash(dir), file.Module.Mod.Path, file, text})
		return err
	})
	// go.mod lists indirect requirements too, so a module has more of them than each module that it requires.
	ours := func(m module) (n int) {
		for _, other := range all {
			if m.requires(other.path) {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b module) int { return cmp.Or(ours(a)-ours(b), strings.Compare(a.dir, b.dir)) })
	return all, err
}

// requires reports whether a module requires another one.
func (m module) requires(path string) bool {
	return slices.ContainsFunc(m.file.Require, func(r *modfile.Require) bool { return r.Mod.Path == path })
}

// released reports whether a module is released.
func (m module) released() bool {
	top, _, _ := strings.Cut(m.dir, "/")
	return !slices.Contains([]string{"internal", "bench", "deploy", "examples"}, top)
}

// version returns the version by which all modules require the released ones. The error has all requirements of another
// version, and each replace directive: who uses a module does not see it, and go install refuses a module that has one.
func version(all []module) (string, error) {
	paths := map[string]bool{}
	for _, m := range all {
		paths[m.path] = m.released()
	}
	var errs []error
	of := map[string][]string{}
	for _, m := range all {
		for _, r := range m.file.Require {
			released, ours := paths[r.Mod.Path]
			switch {
			case ours && released:
				of[r.Mod.Version] = append(of[r.Mod.Version], m.dir)
			case ours && m.released():
				errs = append(errs, fmt.Errorf("%s/go.mod requires %s, which is not released", m.dir, r.Mod.Path))
			}
		}
		for _, r := range m.file.Replace {
			errs = append(errs, fmt.Errorf("%s/go.mod replaces %s: go.work does that", m.dir, r.Old.Path))
		}
	}
	versions := slices.Collect(maps.Keys(of))
	if len(of) != 1 {
		errs = append(errs, fmt.Errorf("modules require the released ones by several versions, or by none: %v", of))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return versions[0], nil
}
