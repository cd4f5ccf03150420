package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/filepoll"
	"github.com/hybridlimit/hybridlimit/rls"
)

// msgUnusable is the line of the log about files that cannot be used.
const msgUnusable = "hybridlimit-rls: the configuration cannot be used; the rules before stay in force; correct the files"

// firstTries is the number of looks at a configuration that keeps changing, at the start.
const firstTries = 20

// watcher keeps the rules of a service as those of the configuration files.
type watcher struct {
	source
	poller filepoll.Poller[*rls.Rules]
}

// newWatcher puts the rules of the configuration in force. It fails if they cannot be used, unless s.NoWait. InForce is
// called with all rules that are put in force.
func newWatcher(ctx context.Context, s Settings, service *rls.Service, log *slog.Logger, inForce func(*rls.Rules)) (*watcher, error) {
	w := &watcher{source: newSource(s.Config, msgUnusable, log)}
	w.poller = filepoll.Poller[*rls.Rules]{
		Read: func() ([]byte, error) { return readConfig(s.Config) },
		Parse: func(data []byte) (*rls.Rules, error) {
			var files []rls.File
			if err := json.Unmarshal(data, &files); err != nil {
				return nil, err
			}
			return rls.ParseRules(files, s.Merge)
		},
		Apply: func(rules *rls.Rules, hash [sha256.Size]byte) error {
			if err := service.SetRules(rules); err != nil {
				return err
			}
			w.inForce(rules, slog.String("sha256", fmt.Sprintf("%x", hash[:6])))
			inForce(rules)
			return nil
		},
	}
	err := filepoll.ErrUnsettled
	for try := 0; try < firstTries && errors.Is(err, filepoll.ErrUnsettled); try++ {
		err = w.poller.Look(ctx)
	}
	switch {
	case err != nil && !s.NoWait:
		return nil, fmt.Errorf("hybridlimit-rls: -config %s: %w", s.Config, err)
	case err != nil:
		service.CountRefused()
	}
	w.note(err)
	return w, nil
}

// run looks at the files until ctx ends. Refused is called with each look that finds an invalid configuration.
func (w *watcher) run(ctx context.Context, every time.Duration, refused func()) {
	follow(ctx, &w.poller, every, func(err error) {
		if err != nil {
			refused()
		}
		w.note(err)
	})
}

// follow looks at files until ctx ends, and calls note with the result of each look at files that do not change just
// then.
func follow[T any](ctx context.Context, files *filepoll.Poller[T], every time.Duration, note func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			files.Wait(time.Second)
			return
		case <-tick.C:
		}
		if err := files.Look(ctx); ctx.Err() == nil && !errors.Is(err, filepoll.ErrUnsettled) {
			note(err)
		}
	}
}

const (
	// maxBytes is the size of the largest configuration, in bytes.
	maxBytes = 32 << 20
	// maxFiles is the largest number of its files.
	maxFiles = 10_000
)

// readConfig returns the files of a path as one text. Of a directory it reads all files, whatever their names, also in its
// directories, but nothing whose name begins with a dot: a volume of Kubernetes has its versions in such directories.
func readConfig(path string) ([]byte, error) {
	names, err := configFiles(path)
	if err != nil {
		return nil, err
	}
	var files []rls.File
	size := 0
	for _, name := range names {
		data, err := readRegular(name, maxBytes-size)
		if err != nil {
			return nil, err
		}
		size += len(data)
		files = append(files, rls.File{Name: name, Data: data})
	}
	return json.Marshal(files)
}

func configFiles(path string) ([]string, error) {
	// The path itself may be a link, as in the layout of envoyproxy/ratelimit.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	var names []string
	err = filepath.WalkDir(real, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case name == real:
			if !d.IsDir() {
				names = []string{path}
			}
		case strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir() || linkToDir(name, d):
		case len(names) == maxFiles:
			return fmt.Errorf("%s has more than %d files", path, maxFiles)
		default:
			rest, _ := filepath.Rel(real, name)
			names = append(names, filepath.Join(path, rest))
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no file; to have no rules, keep a file with a domain only", path)
	}
	return names, err
}

// linkToDir reports whether an entry of a directory is a link to a directory. Reading other things that are no files fails.
func linkToDir(name string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// readRegular reads a regular file: opening a pipe would wait for a writer.
func readRegular(name string, most int) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is not a regular file")}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s: the configuration has more than %d bytes", name, maxBytes)
	}
	return data, err
}
