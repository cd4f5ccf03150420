// Package yamllimit reads the files of package limitfile in YAML. It is a module of its own, so that programs with JSON
// do not depend on a parser of YAML.
//
//	api:
//	  limit: 100/s burst 200
//	  plans:
//	    gold: 1000/s burst 3000
//	  keys:
//	    partner-7: 500/s
//	    partner-8: gold
//
//	limits, err := limitfile.Watch("limits.yaml", hub, limitfile.Config{Parse: yamllimit.Parse})
//
// The fields are those of package limitfile, and so are the rules. In addition:
//
//   - A file is one document. Tags, aliases and merge keys (<<) are errors. Plans give
//     names to limits.
//   - Names are taken as written: the key 007 is the text "007".
//   - Only true and false are booleans, not yes and on.
//   - A file has at most 32 768 values, or one for each 4 bytes if that is more. Names count
//     as values. A line has at most 32 768, or one for each 8 bytes if that is more. So the
//     memory of the parser is bounded before it runs.
//
// Take care with incomplete files: YAML without its last lines is often valid. A reader cannot tell such a file from a
// complete one. Write a new file and rename it over the old one.
package yamllimit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/yamlbound"
	"github.com/hybridlimit/hybridlimit/limitfile"
)

// maxDepth is the deepest nesting that is read. A valid file has three mappings inside each other.
const maxDepth = 8

// bytesInLine is the bound of values in a line of more than 32 768 values.
const bytesInLine = 8

// Parse reads a file in YAML. It is for limitfile.Config.Parse, and for tests of files. Its errors are those of
// limitfile.Parse, with the lines of the YAML.
func Parse(name string, data []byte) (*limitfile.File, error) {
	if err := limitfile.CheckText(name, data); err != nil {
		return nil, err
	}
	if line, text := yamlbound.Problem(data, bytesInLine); text != "" {
		return nil, problem(name, line, "YAML", text)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	switch err := dec.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, problem(name, 1, "the file", "has only comments; a file without settings is {}")
	case err != nil:
		return nil, unreadable(name, err)
	}
	switch err := dec.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, unreadable(name, err)
	default:
		return nil, problem(name, more.Line, "---", "begins a second document; a file has one")
	}
	root, err := node(name, &document, 0)
	if err != nil {
		return nil, err
	}
	return limitfile.Build(name, root)
}

// problem returns an error with one violation.
func problem(name string, line int, value, text string) error {
	var bad adapter.Violations
	bad.Add(fmt.Sprint(name, ":", line), value, text)
	return bad.Err("limitfile")
}

// unreadable returns the error for a text that is not YAML.
func unreadable(name string, err error) error {
	line, text := 1, err.Error()
	if load, ok := errors.AsType[*yaml.LoadError](err); ok {
		line, text = max(load.Mark.Line, 1), load.Message
	}
	return problem(name, line, "YAML", "cannot be read: "+text)
}

// node returns a value as a limitfile.Node.
func node(name string, y *yaml.Node, depth int) (limitfile.Node, error) {
	n := limitfile.Node{Kind: limitfile.Other, Line: y.Line, Text: y.Value}
	if depth > maxDepth {
		return n, problem(name, y.Line, "the value", fmt.Sprintf("has more than %d values around it", maxDepth))
	}
	switch y.Kind {
	case yaml.DocumentNode:
		return node(name, y.Content[0], depth)
	case yaml.AliasNode:
		n.Text = "*" + y.Value + ", an alias"
	case yaml.SequenceNode:
		n.Text = "a sequence"
	case yaml.ScalarNode:
		scalar(y, &n)
	case yaml.MappingNode:
		if y.Style&yaml.TaggedStyle != 0 {
			n.Text = "a mapping with the tag " + y.Tag
			return n, nil
		}
		n.Kind, n.Text = limitfile.Object, ""
		for i := 0; i+1 < len(y.Content); i += 2 {
			key := y.Content[i]
			if key.Kind != yaml.ScalarNode || key.Style&yaml.TaggedStyle != 0 {
				return n, problem(name, key.Line, "the name", "must be plain text, without a tag or an alias")
			}
			value, err := node(name, y.Content[i+1], depth+1)
			if err != nil {
				return n, err
			}
			y.Content[i], y.Content[i+1] = nil, nil // for the garbage collector
			n.Members = append(n.Members, limitfile.Member{Name: key.Value, Line: key.Line, Value: value})
		}
	}
	return n, nil
}

// scalar sets the kind of a plain or quoted value.
func scalar(y *yaml.Node, n *limitfile.Node) {
	switch tag := y.ShortTag(); {
	case y.Style&yaml.TaggedStyle != 0:
		n.Text = y.Tag + " " + y.Value
	case tag == "!!str":
		n.Kind = limitfile.Text
	case tag == "!!bool":
		n.Kind, n.Text = limitfile.Bool, strings.ToLower(y.Value)
	case tag == "!!null":
		n.Text = "null"
	}
}
