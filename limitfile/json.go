package limitfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/adapter"
)

// MaxSize is the length of the longest valid file, in bytes: 4 MiB. That is room for about 100 000 keys.
const MaxSize = 4 << 20

// maxDepth is the deepest nesting that is read. A valid file has three objects inside each other.
const maxDepth = 8

// Parse reads a file in JSON. The name stands for the file in errors. The error is a
// *hybridlimit.InvalidError with all violations. Their fields begin with the name and
// the line: "limits.json:12: api.keys.partner-7". After 100 violations the check of
// the file stops, and a last one says so.
func Parse(name string, data []byte) (*File, error) {
	if err := CheckText(name, data); err != nil {
		return nil, err
	}
	data = bytes.TrimPrefix(data, []byte(bom))
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		offset := len(data)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = int(syntax.Offset)
		}
		return nil, unreadable(name, data, offset-1, "cannot be read as JSON: "+err.Error())
	}
	r := jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.dec.UseNumber()
	root, err := r.node(0)
	if err != nil {
		return nil, unreadable(name, data, int(r.dec.InputOffset())-1, err.Error())
	}
	return Build(name, root)
}

// bom is the byte order mark of UTF-8. Editors on Windows write it.
const bom = "\ufeff"

// CheckText returns an error for content that is no text of a file in any format: empty, longer than MaxSize, with a
// NUL byte, or not UTF-8. It is for parsers of other formats. A byte order mark of UTF-8 is accepted, and a parser
// should skip it.
func CheckText(name string, data []byte) error {
	var bad adapter.Violations
	switch at := firstInvalid(data); {
	case len(data) > MaxSize:
		bad.Add(name+":1", asWritten(fmt.Sprint(len(data), " bytes")), fmt.Sprintf("is longer than %d bytes", MaxSize))
	case len(bytes.TrimSpace(bytes.TrimPrefix(data, []byte(bom)))) == 0:
		bad.Add(name+":1", "", "is empty; a file without settings is {}")
	case bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")):
		return unreadable(name, data, 0, "is UTF-16; it must be UTF-8")
	case bytes.IndexByte(data, 0) >= 0:
		return unreadable(name, data, bytes.IndexByte(data, 0), "has a NUL byte; the file is binary, or was not written to its end")
	case at >= 0:
		return unreadable(name, data, at, "is not UTF-8")
	}
	return bad.Err(pkg)
}

// firstInvalid returns the position of the first byte that is not UTF-8, or -1.
func firstInvalid(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for at := 0; ; {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// unreadable returns an error that names and quotes the line of a position.
func unreadable(name string, data []byte, at int, problem string) error {
	at = min(max(at, 0), len(data))
	line := 1 + bytes.Count(data[:at], []byte("\n"))
	text := data[bytes.LastIndexByte(data[:at], '\n')+1:]
	if end := bytes.IndexByte(text, '\n'); end >= 0 {
		text = text[:end]
	}
	var bad adapter.Violations
	bad.Add(fmt.Sprint(name, ":", line), abridged(strings.TrimSpace(string(text))), problem)
	return bad.Err(pkg)
}

// jsonReader makes Nodes of tokens. Unmarshal would hide duplicate names.
type jsonReader struct {
	data []byte
	dec  *json.Decoder
	seen int // offset up to which line counts
	line int
}

// token reads one token and its line. Tokens of JSON do not span lines.
func (r *jsonReader) token() (json.Token, error) {
	t, err := r.dec.Token()
	end := int(r.dec.InputOffset())
	r.line += bytes.Count(r.data[r.seen:end], []byte("\n"))
	r.seen = end
	return t, err
}

// node reads one value. The data is known to be one value of JSON.
func (r *jsonReader) node(depth int) (Node, error) {
	t, err := r.token()
	if err != nil {
		return Node{}, err
	}
	n := Node{Line: r.line}
	switch t := t.(type) {
	case string:
		n.Kind, n.Text = Text, t
	case bool:
		n.Kind, n.Text = Bool, fmt.Sprint(t)
	case json.Number:
		n.Kind, n.Text = Other, t.String()
	case nil:
		n.Kind, n.Text = Other, "null"
	case json.Delim:
		if depth >= maxDepth {
			return n, fmt.Errorf("has more than %d values inside each other", maxDepth)
		}
		return r.nested(n, t, depth+1)
	}
	return n, nil
}

// nested reads an object or an array up to its end.
func (r *jsonReader) nested(n Node, open json.Delim, depth int) (Node, error) {
	if open == '[' {
		n.Kind, n.Text = Other, "an array"
	}
	for r.dec.More() {
		var m Member
		if open == '{' {
			t, err := r.token()
			if err != nil {
				return n, err
			}
			m.Name, _ = t.(string)
			m.Line = r.line
		}
		var err error
		if m.Value, err = r.node(depth); err != nil {
			return n, err
		}
		if open == '{' {
			n.Members = append(n.Members, m)
		}
	}
	_, err := r.token()
	return n, err
}

// Kind is the kind of a Node.
type Kind uint8

// The kinds.
const (
	// Object is a list of named members.
	Object Kind = iota
	// Text is a string.
	Text
	// Bool is true or false.
	Bool
	// Other is any other value, such as a number or an array. No field has one.
	Other
)

// Node is a value in a file, with its place. Parsers of other formats than JSON make a tree of Nodes for Build. Names
// may be duplicate and values may be invalid: Build reports them.
type Node struct {
	// Kind is the kind of the value.
	Kind Kind
	// Line is the number of the value's line, from 1.
	Line int
	// Text is the string of a Text, "true" or "false" of a Bool, and the value as written of an Other.
	Text string
	// Members are those of an Object, in the order of the file.
	Members []Member
}

// Member is a named value in an Object.
type Member struct {
	// Name is the name. It is not empty in a valid file.
	Name string
	// Line is the number of the name's line, from 1.
	Line int
	// Value is the value.
	Value Node
}

// asWritten is a value that an error quotes without quotation marks.
type asWritten string

// shown returns the value for an error.
func (n Node) shown() any {
	switch n.Kind {
	case Object:
		return asWritten("an object")
	case Text:
		return abridged(n.Text)
	}
	return asWritten(abridged(n.Text))
}
