package main

import (
	"bufio"
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

// This file reads append-only files: the commands that a server has executed, in order, as Redis writes them.

// aofFiles returns the incremental files of a directory "appendonlydir", in order. The base file is a snapshot and has
// no history.
func aofFiles(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.incr.aof"))
	slices.SortFunc(files, byNumber) // of appendonly.aof.7.incr.aof
	return files, err
}

// byNumber orders names that differ in a number.
func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// transaction is a list of commands that were executed as one.
type transaction [][]string

// readAOF calls f for each transaction. A command outside MULTI and EXEC is a transaction of its own. A truncated end
// is not an error: the server was killed while it wrote.
func readAOF(path string, f func(transaction)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	var tx transaction
	open := false
	for in := bufio.NewReaderSize(file, 1<<20); ; {
		cmd, err := readCommand(in)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
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

func readCommand(in *bufio.Reader) ([]string, error) {
	count, err := readCount(in, "*")
	if err != nil {
		return nil, err
	}
	cmd := make([]string, count)
	for i := range cmd {
		size, err := readCount(in, "$")
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+len("\r\n"))
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

// readCount reads a line with a prefix and a number. The servers write no time stamps between the commands.
func readCount(in *bufio.Reader, prefix string) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	number, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), prefix)
	if !ok {
		return 0, fmt.Errorf("got line %q, want %q and a number", line, prefix)
	}
	return strconv.Atoi(number)
}

// written returns the key and the text that a command has written. copied reports whether it copies a key from another
// node.
func written(cmd []string) (key, text string, copied, ok bool) {
	switch strings.ToUpper(cmd[0]) {
	case "SET":
		return cmd[1], cmd[2], false, true
	case "RESTORE", "RESTORE-ASKING":
		text, ok := restored(cmd[3])
		return cmd[1], text, true, ok
	}
	return "", "", false, false
}

// restored returns the text in a payload of RESTORE, as MIGRATE sends it: a type, a length, the text, a version and a
// checksum. ok is false if the payload is not an uncompressed string.
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

// mortal reports whether the transaction gives a key, which cmd has written, a TTL.
func mortal(tx transaction, cmd []string, key string) bool {
	if _, _, copied, _ := written(cmd); copied {
		return cmd[2] != "0"
	}
	return slices.ContainsFunc(cmd[3:], func(word string) bool {
		return slices.Contains([]string{"PX", "PXAT", "EX", "EXAT"}, strings.ToUpper(word))
	}) || slices.ContainsFunc(tx, func(c []string) bool {
		return strings.HasPrefix(strings.ToUpper(c[0]), "PEXPIRE") && c[1] == key
	})
}

// deleted returns the keys that a command deletes. Redis writes a DEL for each key that it evicts.
func deleted(cmd []string) []string {
	switch strings.ToUpper(cmd[0]) {
	case "FLUSHALL", "FLUSHDB":
		return []string{everything}
	case "DEL", "UNLINK":
		return cmd[1:]
	}
	return nil
}

// everything is the key of a deletion of all keys.
const everything = ""

// envelopeOf returns the batch that a transaction applies, and its stamp.
func envelopeOf(tx transaction) (batch string, stamp int64) {
	for _, cmd := range tx {
		key, text, _, ok := written(cmd)
		if !ok || !strings.Contains(key, "}:@env:") || len(text) < 2 {
			continue
		}
		if fields := strings.Fields(text[2:]); len(fields) > 1 {
			stamp, _ = strconv.ParseInt(fields[1], 10, 64)
			return key + "#" + fields[0], stamp
		}
	}
	return "", 0
}
