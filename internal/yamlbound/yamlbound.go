// Package yamlbound bounds the memory that a parser of YAML needs, before the parser runs. A parser keeps some hundred
// bytes for each value, and a value may have one byte. limitfile/yamllimit and rls share the package.
package yamlbound

import (
	"bytes"
	"fmt"
)

const (
	// anyway is the number of values that a file may have, and a line, whatever its length.
	anyway = 1 << 15
	// BytesPerValue is the bound of longer files. Files of short names and limits have 4.5.
	BytesPerValue = 4
	// maxDirectives is the number of lines that begin with %. A parser compares each with all before it.
	maxDirectives = 100
)

// Problem returns the bound that a text exceeds, and the line, from 1. The problem is empty if the text keeps to all.
//
// BytesInLine is the bound of values in a long line. A parser keeps all tokens of a line until its end, because all
// that is before a colon may be a name. With BytesPerValue a long line has no bound of its own.
//
// It counts indicators of YAML wherever they are, also in quoted texts. So a text cannot hide values from it by a
// quotation mark. The number of values in the parser's tree is at most half as large again.
func Problem(data []byte, bytesInLine int) (line int, problem string) {
	most, all, directives := max(anyway, len(data)/BytesPerValue), 0, 0
	for line = 1; len(data) > 0; line++ {
		text, rest := cutLine(data)
		data = rest
		n := 0
		if !comment(text) {
			n = values(text)
		}
		all += n
		if text[0] == '%' {
			directives++
		}
		switch {
		case bytesInLine != BytesPerValue && n > max(anyway, len(text)/bytesInLine):
			const most = "has about %d values in one line; the most are %d, or one for each %d bytes of a longer line"
			return line, fmt.Sprintf(most, n, anyway, bytesInLine)
		case all > most:
			return line, fmt.Sprintf("has more than %d values up to this line, the most in a file of its length", most)
		case directives > maxDirectives:
			return line, fmt.Sprintf("has more than %d lines that begin with %%", maxDirectives)
		}
	}
	return 0, ""
}

// cutLine returns the first line of a text with its end, and the rest.
func cutLine(data []byte) (line, rest []byte) {
	end := bytes.IndexAny(data, "\r\n") + 1
	switch {
	case end == 0:
		end = len(data)
	case data[end-1] == '\r' && end < len(data) && data[end] == '\n':
		end++
	}
	return data[:end], data[end:]
}

// comment reports whether a line has no values: it begins with #, and cannot end a quoted text that began before it.
func comment(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) > 0 && line[0] == '#' && !bytes.ContainsAny(line, "\"'")
}

// values returns about the number of values in a line, names included. An entry, up to a comma or the end of the line,
// has two or more: a name without a value has the value null.
func values(line []byte) (n int) {
	indicators, text := 0, false
	before := byte(',') // the last byte that is no space
	for i, c := range line {
		prev, next := byte('\n'), byte('\n')
		if i > 0 {
			prev = line[i-1]
		}
		if i+1 < len(line) {
			next = line[i+1]
		}
		if c == ',' {
			n += max(2, 1+indicators)
			indicators, text, before = 0, false, c
			continue
		}
		indicators += indicates(c, prev, next, before)
		if c > ' ' {
			text, before = true, c
		}
	}
	if text {
		n += max(2, 1+indicators)
	}
	return n
}

// indicates returns the number of values that a byte may begin besides that of its entry.
func indicates(c, prev, next, before byte) int {
	switch {
	case c == '[' || c == '{',
		(c == ']' || c == '}') && bytes.IndexByte([]byte("[]{},"), before) >= 0, // a token without a value
		c == ':' && (!inWord(prev) || !inWord(next)),                            // not that of an address or a time
		c == '-' && blank(prev) && blank(next),
		(c == '!' || c == '&' || c == '*') && (blank(prev) || bytes.IndexByte([]byte("[]{},:"), prev) >= 0):
		return 1
	case c == '?' && !inWord(prev): // a mapping and a null
		return 2
	}
	return 0
}

func blank(c byte) bool { return c <= ' ' || c > 0x7f }

func inWord(c byte) bool {
	return c == ':' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
