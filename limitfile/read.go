package limitfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// source reads a file. A read has a goroutine of its own, because a read from a file
// system that hangs cannot be interrupted. There is one read at a time.
type source struct {
	path    string
	read    func(path string) ([]byte, error)
	pending chan content // of the read that has not been awaited; nil: none
}

// content is the result of a read.
type content struct {
	data []byte
	err  error
}

// errSlow means that a read has not returned yet.
var errSlow = fmt.Errorf("a read takes longer than %v", slowRead)

// fetch returns the content of the file. After a read that took too long, the next
// call waits for that read and takes its content.
func (s *source) fetch(ctx context.Context) ([]byte, error) {
	if s.pending == nil {
		s.pending = make(chan content, 1)
		go func(to chan<- content) {
			data, err := s.read(s.path)
			to <- content{data, err}
		}(s.pending)
	}
	slow := time.NewTimer(slowRead)
	defer slow.Stop()
	select {
	case c := <-s.pending:
		s.pending = nil
		return c.data, c.err
	case <-slow.C:
		return nil, fmt.Errorf("limitfile: %s: %w", s.path, errSlow)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wait waits for a read that has not been awaited, at most for the given time.
func (s *source) wait(most time.Duration) {
	if s.pending == nil {
		return
	}
	select {
	case <-s.pending:
		s.pending = nil
	case <-time.After(most):
	}
}

// readFile reads a file of at most MaxSize bytes. It refuses all that is no regular
// file before it opens it: opening a pipe waits for a writer.
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
