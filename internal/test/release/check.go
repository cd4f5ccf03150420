package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A consumer uses a module as somebody else would: in a module of its own, by version.
type consumer struct {
	module  string // dir of the module
	program string // file below testdata/consumers; "": none
	install string // package below the module for go install; "": none
	args    []string
	want    string // in the output
}

//go:embed testdata/consumers
var programs embed.FS

// consumers has at least one consumer of each released module.
var consumers = []consumer{
	{".", "root.go.txt", "", nil, "true 1\n429\n"},
	{".", "", "cmd/hybridlimit", []string{"version"}, "hybridlimit v"},
	{"grpclimit", "grpclimit.go.txt", "", nil, "OK\nResourceExhausted\n"},
	{"limitfile/yamllimit", "yamllimit.go.txt", "", nil, "5 per 1s, burst 5 (token bucket)\n"},
	{"shed", "shed.go.txt", "", nil, "true\n"},
	{"rls", "", "cmd/hybridlimit-rls", []string{"-help"}, "-strict-compat"},
}

// check makes a module proxy of the checkout, and compiles and runs the consumers with it.
func check(ctx context.Context, root string, out io.Writer) error {
	all, err := modules(root)
	if err != nil {
		return err
	}
	v, err := version(all)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, c := range consumers {
		used[c.module] = true
	}
	for _, m := range all {
		if m.released() && !used[m.dir] {
			return fmt.Errorf("the module %s has no consumer in check.go", m.path)
		}
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	proxy := filepath.Join(work, "proxy")
	if err := writeProxy(proxy, root, v, all); err != nil {
		return err
	}
	env, err := environment(ctx, work, proxy)
	if err != nil {
		return err
	}
	var errs []error
	for i, c := range consumers {
		m := all[indexOf(all, c.module)]
		if err := c.use(ctx, filepath.Join(work, fmt.Sprint("consumer", i)), m.path, v, env); err != nil {
			errs = append(errs, fmt.Errorf("a program that uses %s@%s: %w", m.path, v, err))
			continue
		}
		what := "a program uses"
		if c.install != "" {
			what = "go install of " + c.install + " from"
		}
		fmt.Fprintf(out, "%s %s@%s\n", what, m.path, v)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d programs use the modules at %s, without a replace\n", len(consumers), v)
	return nil
}

func indexOf(all []module, dir string) int {
	for i, m := range all {
		if m.dir == dir {
			return i
		}
	}
	return -1
}

// environment returns the environment of a consumer: no workspace, a module cache of its own, and the proxy of the
// checkout before the modules that were downloaded already and the usual proxy.
func environment(ctx context.Context, work, proxy string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 {
		return nil, fmt.Errorf("go env: %q", lines)
	}
	url := func(dir string) string { return "file://" + filepath.ToSlash(dir) }
	return append(os.Environ(),
		"GOWORK=off", "GOMODCACHE="+filepath.Join(work, "modules"), "GOBIN="+filepath.Join(work, "bin"), "GONOSUMDB=*",
		"GOPROXY="+url(proxy)+","+url(filepath.Join(lines[0], "cache", "download"))+","+lines[1],
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod -modcacherw"),
	), nil
}

// use makes, compiles and runs a consumer.
func (c consumer) use(ctx context.Context, dir, path, version string, env []string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = dir, env
		var said, failed bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &failed
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, said.String(), failed.String())
		}
		return said.String() + failed.String(), nil
	}
	var got string
	var err error
	if c.install != "" {
		if _, err := run("go", "install", path+"/"+c.install+"@"+version); err != nil {
			return err
		}
		got, err = run(filepath.Join(filepath.Dir(dir), "bin", filepath.Base(c.install)), c.args...)
	} else {
		text, err := programs.ReadFile("testdata/consumers/" + c.program)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644); err != nil {
			return err
		}
		for _, args := range [][]string{{"mod", "init", "example.com/consumer"}, {"get", path + "@" + version}} {
			if _, err := run("go", args...); err != nil {
				return err
			}
		}
		if got, err = run("go", "run", "."); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if !strings.Contains(got, c.want) {
		return fmt.Errorf("it printed %q, want %q", got, c.want)
	}
	return nil
}
