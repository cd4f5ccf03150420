package limitfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/hybridlimit/hybridlimit"
)

// readFile reads a file of at most MaxSize bytes. It refuses all that is no regular file before it opens it: opening a
// pipe waits for a writer.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("limitfile: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("limitfile: %w", &fs.PathError{Op: "read", Path: path, Err: errors.New("is not a regular file, but " + describe(info.Mode()))})
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("limitfile: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("limitfile: %w", err)
	case len(data) > MaxSize:
		var bad hybridlimit.Violations
		bad.Add(path+":1", asWritten("the file"), fmt.Sprintf("is longer than %d bytes", MaxSize))
		return nil, bad.Err(pkg)
	}
	return data, nil
}

// describe names a kind of file.
func describe(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	}
	return "of mode " + m.String()
}
