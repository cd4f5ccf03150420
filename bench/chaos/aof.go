package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// This file reads append-only files: the commands that a server has executed,
// in order, as Redis writes them.

// aofFiles returns the incremental files of a directory "appendonlydir", in
// order. The base file is a snapshot and has no history.
func aofFiles(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.incr.aof"))
	if err != nil {
		return nil, err
	}
	number := func(path string) int {
		parts := strings.Split(filepath.Base(path), ".") // appendonly.aof.7.incr.aof
		n, _ := strconv.Atoi(parts[max(0, len(parts)-3)])
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return number(a) - number(b) })
	return files, nil
}

// transaction is a list of commands that were executed as one.
type transaction [][]string

// readAOF calls f for each transaction. A command outside MULTI and EXEC is a
// transaction of its own. A truncated end is not an error: the server was
// killed while it wrote.
func readAOF(path string, f func(transaction)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	var tx transaction
	open := false
	for {
		cmd, err := readCommand(in)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		switch verb := strings.ToUpper(cmd[0]); {
		case verb == "MULTI":
			tx, open = nil, true
		case verb == "EXEC":
			f(tx)
			open = false
		case open:
			tx = append(tx, cmd)
		default:
			f(transaction{cmd})
		}
	}
}

// readCommand reads an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	count, err := readCount(in, '*')
	if err != nil {
		return nil, err
	}
	cmd := make([]string, count)
	for i := range cmd {
		size, err := readCount(in, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		cmd[i] = string(b[:size])
	}
	if count == 0 {
		return nil, errors.New("an empty command")
	}
	return cmd, nil
}

// readCount reads a line that begins with the given letter. It skips comment
// lines, which are time stamps.
func readCount(in *bufio.Reader, letter byte) (int, error) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) > 0 && line[0] == '#' {
			continue
		}
		if len(line) < 2 || line[0] != letter {
			return 0, fmt.Errorf("got line %q, want %q and a number", line, letter)
		}
		return strconv.Atoi(string(line[1:]))
	}
}

// restored returns the text in a payload of RESTORE, as MIGRATE sends it: a
// type, a length, the text, a version and a checksum. ok is false if the
// payload is not an uncompressed string.
func restored(payload string) (text string, ok bool) {
	const footer = 10
	if len(payload) < 2+footer || payload[0] != 0 {
		return "", false
	}
	size, body := int(payload[1]), payload[2:len(payload)-footer]
	switch size >> 6 {
	case 0:
	case 1:
		size = (size&63)<<8 | int(payload[2])
		body = body[1:]
	default:
		return "", false
	}
	return body, size == len(body)
}
