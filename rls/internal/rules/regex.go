package rules

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// The bounds of expressions. A client chooses the values that are compared with them.
const (
	maxRegexes = 100  // of the descriptors in one list
	maxRegex   = 1000 // bytes of an expression, and steps of its program
	// maxRegexValue is the longest value that is compared, in bytes. A longer one fits the first expression of its key: a
	// client must not get out of a limit by a long value.
	maxRegexValue = 4096
)

// regex reads the value_regex of a descriptor: what its whole value must be, in the syntax of RE2.
func (b *builder) regex(d *node, f field, value string, parent *node) {
	text := b.text(f)
	d.name = d.key + "_~" + text
	bad := func(problem string) { b.add(f.line, f.path, Other, "", problem) }
	switch {
	case value != "":
		bad("must not be beside value")
		return
	case text == "":
		bad("must not be empty")
		return
	case len(text) > maxRegex:
		bad(fmt.Sprintf("has %d bytes; the most are %d", len(text), maxRegex))
		return
	case parent.regexes == maxRegexes:
		bad(fmt.Sprintf("is one more than %d in one list", maxRegexes))
		return
	}
	parent.regexes++
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		bad(fmt.Sprintf("(%q) must be an expression in the syntax of RE2: %v", abridged(text), err))
		return
	}
	if p, err := syntax.Compile(tree.Simplify()); err != nil || len(p.Inst) > maxRegex {
		bad(fmt.Sprintf("(%q) makes a program of more than %d steps", abridged(text), maxRegex))
		return
	}
	d.regex = regexp.MustCompile(`^(?:` + text + `)\z`)
}
