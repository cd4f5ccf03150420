package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	paths := map[string]string{}
	for _, m := range all {
		paths[m.dir] = m.path
		if m.released() && !slices.ContainsFunc(consumers, func(c consumer) bool { return c.module == m.dir }) {
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
		path, what := paths[c.module], "a program uses"
		if c.install != "" {
			what = "go install of " + c.install + " from"
		}
		if err := c.use(ctx, filepath.Join(work, fmt.Sprint("consumer", i)), path, v, env); err != nil {
			errs = append(errs, fmt.Errorf("%s %s@%s: %w", what, path, v, err))
			continue
		}
		fmt.Fprintf(out, "%s %s@%s\n", what, path, v)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d programs use the modules at %s, without a replace\n", len(consumers), v)
	return nil
}

// environment returns the environment of a consumer: no workspace, a module cache of its own, and the proxy of the
// checkout before the modules that were downloaded already and the usual proxy.
func environment(ctx context.Context, work, proxy string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	cache, usual, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	url := func(dir string) string { return "file://" + filepath.ToSlash(dir) }
	return append(os.Environ(),
		"GOWORK=off", "GOMODCACHE="+filepath.Join(work, "modules"), "GOBIN="+filepath.Join(work, "bin"), "GONOSUMDB=*",
		"GOPROXY="+url(proxy)+","+url(filepath.Join(cache, "cache", "download"))+","+usual,
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod -modcacherw"),
	), nil
}

// use makes, compiles and runs a consumer.
func (c consumer) use(ctx context.Context, dir, path, version string, env []string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	bin := filepath.Join(filepath.Dir(dir), "bin", filepath.Base(c.install))
	steps := [][]string{{"go", "install", path + "/" + c.install + "@" + version}, append([]string{bin}, c.args...)}
	if c.install == "" {
		text, err := programs.ReadFile("testdata/consumers/" + c.program)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644); err != nil {
			return err
		}
		steps = [][]string{
			{"go", "mod", "init", "example.com/consumer"}, {"go", "get", path + "@" + version}, {"go", "run", "."},
		}
	}
	var said []byte // by the last step
	for _, args := range steps {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		var err error
		if said, err = cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said)
		}
	}
	if !strings.Contains(string(said), c.want) {
		return fmt.Errorf("it printed %q, want %q", said, c.want)
	}
	return nil
}
