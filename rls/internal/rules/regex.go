package rules

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// The bounds of expressions. A client chooses the values that are compared with them: so it pays at most maxSteps times
// maxRegexValue steps of a program for an entry of a descriptor, some ms (TestManyExpressions).
const (
	maxRegex = 1000 // bytes of an expression
	maxSteps = 1000 // of the programs of the descriptors in one list
	// maxRegexValue is the longest value that is compared, in bytes. A longer one fits no expression.
	maxRegexValue = 1024
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
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		bad(fmt.Sprintf("(%q) must be an expression in the syntax of RE2: %v", abridged(text), err))
		return
	}
	// The text of the tree, and not the text itself: an open \Q would quote what stands behind it.
	whole := `^(?:` + tree.String() + `)\z`
	if d.regex, err = regexp.Compile(whole); err != nil {
		bad(fmt.Sprintf("(%q) cannot be used: %v", abridged(text), err))
		return
	}
	if parent.steps += steps(whole); parent.steps > maxSteps {
		bad(fmt.Sprintf("(%q) and those before it in its list make programs of more than %d steps", abridged(text), maxSteps))
	}
}

// steps returns the number of steps of the program of a valid expression.
func steps(text string) int {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return maxSteps + 1
	}
	p, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return maxSteps + 1
	}
	return len(p.Inst)
}
