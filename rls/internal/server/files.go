package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hybridlimit/hybridlimit/rls"
)

const (
	// maxBytes is the size of the largest configuration, in bytes.
	maxBytes = 32 << 20
	// maxFiles is the largest number of its files.
	maxFiles = 10_000
)

// readConfig returns the files of a path as one text. It reads a file of any name. Of a directory it reads *.yaml and
// *.yml, also in its directories, but nothing whose name begins with a dot: a volume of Kubernetes has its versions in
// such directories.
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

// parseConfig reads the text of readConfig.
func parseConfig(data []byte, merge bool) (*rls.Rules, error) {
	var files []rls.File
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, err
	}
	return rls.ParseRules(files, merge)
}

func configFiles(path string) ([]string, error) {
	// The path itself may be a link, as in the layout of envoyproxy/ratelimit.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var names []string
	err = filepath.WalkDir(real, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch ext := filepath.Ext(name); {
		case name == real:
		case strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir() || ext != ".yaml" && ext != ".yml":
		case len(names) == maxFiles:
			return fmt.Errorf("%s has more than %d files", path, maxFiles)
		default:
			rest, _ := filepath.Rel(real, name)
			names = append(names, filepath.Join(path, rest))
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no file *.yaml or *.yml; to have no rules, keep a file with a domain only", path)
	}
	return names, err
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
