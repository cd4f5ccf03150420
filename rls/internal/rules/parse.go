package rules

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/yamlbound"
)

// The bounds of Parse.
const (
	maxFile       = 4 << 20  // bytes of a file
	maxDepth      = 32       // descriptors around each other, and merge keys inside each other
	maxVisits     = 4 << 20  // values in all files; an alias counts as the values that it stands for
	maxPaths      = 64 << 20 // bytes of all paths of rules
	maxViolations = 100      // in one error; after them parsing stops, and one more says so
)

// MaxDescriptors is the largest number of descriptors in all files.
const MaxDescriptors = 100_000

// Tree is a configuration that was not a file: its outermost value.
type Tree struct {
	Name string // for errors
	Root *yaml.Node
}

// ParseTrees is Parse of trees.
func ParseTrees(trees []Tree, merge bool) (*Set, error) {
	b := newBuilder(merge)
	for _, t := range trees {
		b.file, b.files = t.Name, b.files+1
		if b.root(t.Root); b.stopped {
			break
		}
	}
	return b.result()
}

// Parse reads files. Merge joins the descriptors of files with the same domain. Otherwise a second file with a domain
// is an error. The error joins an *Error for each violation. The Set is then nil. After a hundred violations Parse
// stops, and a last *Error says so.
//
// Differences from the service of Envoy: it refuses duplicate fields, explicit tags other than those of the types of a
// field, and a file beyond the bounds: 4 MiB a file, 32 levels, 100 000 descriptors, and 32 768 values a file, or one
// for each 4 bytes if that is more. It accepts numbers with a point as texts. A rate_limit has six fields more:
// unit_multiplier, algorithm, calendar, burst, overshoot and split. A descriptor has two: value_regex and floor.
func Parse(files []File, merge bool) (*Set, error) {
	b := newBuilder(merge)
	for _, f := range files {
		if b.load(f); b.stopped {
			break
		}
	}
	return b.result()
}

// builder makes a Set of files.
type builder struct {
	merge bool
	set   *Set
	bad   []*Error

	file        string // that is read
	files       int
	paths       map[string]bool
	floors      map[kind][]float64
	visits      int
	descriptors int
	pathBytes   int

	metadataBytes int  // of all rules
	stopped       bool // a bound was exceeded, or there are too many violations
}

func newBuilder(merge bool) *builder {
	return &builder{merge: merge, set: &Set{domains: map[string]*node{}}, paths: map[string]bool{}, floors: map[kind][]float64{}}
}

func (b *builder) result() (*Set, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	return b.set, nil
}

// err returns the violations in the order of files and lines.
func (b *builder) err() error {
	var last *Error // says why parsing stopped
	if len(b.bad) > maxViolations {
		last, b.bad = b.bad[maxViolations], b.bad[:maxViolations]
	}
	slices.SortStableFunc(b.bad, func(x, y *Error) int { return cmp.Or(x.order-y.order, x.Line-y.Line) })
	var all []error
	for _, e := range append(b.bad, last) {
		if e != nil {
			all = append(all, e)
		}
	}
	return errors.Join(all...)
}

// add notes a violation. One more than maxViolations stops parsing.
func (b *builder) add(line int, path string, kind Kind, value, text string) {
	if b.stopped {
		return
	}
	if len(b.bad) == maxViolations {
		b.stopped = true
		line, path, kind, value = 0, "", Other, ""
		text = fmt.Sprintf("has more violations; parsing stopped here after %d; correct these first", maxViolations)
	}
	e := &Error{File: b.file, Line: line, Path: path, Text: text, Kind: kind, Value: value, order: b.files}
	b.bad = append(b.bad, e)
}

// warn notes a place without effect.
func (b *builder) warn(line int, path, text string) {
	if len(b.set.warnings) < maxViolations {
		b.set.warnings = append(b.set.warnings, &Error{File: b.file, Line: line, Path: path, Text: text})
	}
}

// stop notes that a bound is exceeded. All that follows is not read.
func (b *builder) stop(line int, path, text string) {
	if !b.stopped {
		b.stopped = true
		b.bad = append(b.bad, &Error{File: b.file, Line: line, Path: path, Text: text})
	}
}

// load reads one file.
func (b *builder) load(f File) {
	b.file, b.files = f.Name, b.files+1
	if len(f.Data) > maxFile {
		b.add(0, "", Other, "", fmt.Sprintf("is longer than %d bytes", maxFile))
		return
	}
	if line, text := yamlbound.Problem(f.Data, yamlbound.BytesPerValue); text != "" {
		b.add(line, "", Other, "", text)
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	var document, more yaml.Node
	switch err := dec.Decode(&document); {
	case errors.Is(err, io.EOF):
		b.add(0, "", EmptyDomain, "", "is empty; it must have a domain")
		return
	case err != nil:
		line, text := 0, err.Error()
		if load, ok := errors.AsType[*yaml.LoadError](err); ok {
			line, text = load.Mark.Line, load.Message
		}
		b.add(line, "", NotYAML, text, "is not YAML: "+text)
		return
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		b.warn(more.Line, "", "has a second document, which has no effect")
	}
	b.root(document.Content[0])
}

// root reads the outermost value of a file.
func (b *builder) root(n *yaml.Node) {
	if isNull(n) {
		b.add(n.Line, "", EmptyDomain, "", "is empty; it must have a domain")
		return
	}
	if n.Kind != yaml.MappingNode {
		b.add(n.Line, "", Other, "", "must be an object with a domain and descriptors, and is "+shown(n))
		return
	}
	if names := foreign(n); names != "" {
		b.add(n.Line, "", UnknownField, n.Content[0].Value, "is another kind of file: it has neither domain nor descriptors, but "+names)
		return
	}
	var domain string
	var descriptors *yaml.Node
	line := n.Line
	for _, f := range b.fields("", []*yaml.Node{n}, rootFields) {
		switch f.name {
		case "domain":
			domain, line = b.text(f), f.line
		case "descriptors":
			descriptors = f.value()
		}
	}
	switch d := b.set.domains[domain]; {
	case domain == "":
		b.add(line, "domain", EmptyDomain, "", "must not be empty")
		d = &node{}
		b.list(descriptors, d, place{}, 0)
	case d != nil && !b.merge:
		b.add(line, "domain", DuplicateDomain, domain, fmt.Sprintf("(%q) is the domain of another file too", abridged(domain)))
	default:
		if d == nil {
			d = &node{name: domain}
			b.set.domains[domain] = d
		}
		b.list(descriptors, d, place{domain: domain, metric: domain, shown: abridged(domain)}, 0)
	}
}

// foreign returns the names of the fields of an object that has no field of a configuration. None of its first hundred
// fields may even be a misspelled one.
func foreign(n *yaml.Node) string {
	var names []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		known := slices.Contains(everyField, name) || i < 200 && near(name, everyField) != ""
		if known || n.Content[i].Kind != yaml.ScalarNode || isMerge(n.Content[i]) || !isText(n.Content[i]) {
			return ""
		}
		if len(names) < 5 {
			names = append(names, abridged(name))
		}
	}
	return strings.Join(names, ", ")
}

// maxFloors is the largest number of different floors of a kind: hybrid.Config.Classes has no more.
const maxFloors = 7

// kind names the rules that share the classes of one limiter.
type kind struct {
	domain    string
	algorithm hybridlimit.Algorithm
	overshoot float64
	split     int
}

// floor reads the floor of a descriptor. Own is the rate_limit of the descriptor, and above is that of the nearest
// descriptor around it; nil: none. It returns nil if the floor is not valid.
func (b *builder) floor(f field, own, above *Rule) *Rule {
	value, valid := b.fraction(f, 0.5)
	problem := ""
	switch {
	case own != nil:
		problem = "must not be beside rate_limit: it is of calls that use the limit of a descriptor around them"
	case above == nil:
		problem = "must be inside a descriptor with rate_limit, whose limit its calls use"
	case above.Unlimited:
		problem = fmt.Sprintf("must not be inside %s, which is unlimited", under("", above.Path))
	case above.Limit.Algorithm == hybridlimit.AlgSlidingLog:
		problem = fmt.Sprintf("must not be inside %s: a sliding log has no floors", under("", above.Path))
	}
	if problem != "" {
		b.add(f.line, f.path, Other, "", problem)
		valid = false
	}
	if !valid {
		return nil
	}
	class := *above
	class.Of, class.Floor, class.File, class.Line = above, value, b.file, f.line
	if value > 0 && above.Limit.Algorithm != hybridlimit.AlgBlocked && above.Limit.Rate > 0 {
		b.count(f, &class)
	}
	return &class
}

// count notes a floor among those of its kind.
func (b *builder) count(f field, class *Rule) {
	if class.Limit.BurstSize() == 1 {
		b.warn(f.line, f.path, "leaves nothing to other calls: the limit has one unit")
	}
	k := kind{class.Domain, class.Limit.Algorithm, class.Overshoot, class.Split}
	switch floors := b.floors[k]; {
	case slices.Contains(floors, class.Floor):
	case len(floors) == maxFloors:
		b.add(f.line, f.path, Other, "", fmt.Sprintf("(%v) is one more than %d different floors, the most in a domain for one "+
			"algorithm, overshoot and split", class.Floor, maxFloors))
	default:
		b.floors[k] = append(floors, class.Floor)
	}
}
