package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// field is a member of an object.
type field struct {
	path string
	name string
	line int
	// nodes are the values: one, or with merge keys (<<) several. The last one counts. An object takes the fields that
	// it does not have itself from those before, as the parser of Envoy's service does.
	nodes []*yaml.Node
}

// value returns the value that counts; nil for null.
func (f field) value() *yaml.Node {
	if n := f.nodes[len(f.nodes)-1]; !isNull(n) {
		return n
	}
	return nil
}

// objects returns the values since the last null.
func (f field) objects() []*yaml.Node {
	for i, n := range slices.Backward(f.nodes) {
		if isNull(n) {
			return f.nodes[i+1:]
		}
	}
	return f.nodes
}

// The names of fields.
var (
	rootFields       = []string{"domain", "descriptors"}
	descriptorFields = []string{
		"key", "value", "value_regex", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
		"floor",
	}
	limitFields = []string{
		"requests_per_unit", "unit", "unit_multiplier", "unlimited", "name", "replaces", "algorithm", "calendar", "burst", "overshoot", "split",
	}
	replacesFields = []string{"name"}
	ownFields      = []string{"unit_multiplier", "algorithm", "calendar", "burst", "overshoot", "split"} // of a limit, that Envoy's service does not know
	everyField     = slices.Concat(rootFields, descriptorFields, limitFields)
)

// fields returns the members of objects that are merged in this order.
func (b *builder) fields(path string, objects []*yaml.Node, known []string) []field {
	var all []field
	for _, n := range objects {
		b.collect(&all, path, n, known, 0)
	}
	return all
}

// collect adds the members of an object to all.
func (b *builder) collect(all *[]field, path string, n *yaml.Node, known []string, depth int) {
	n = b.follow(n)
	if n.Kind != yaml.MappingNode {
		b.add(n.Line, path, Other, "", "must be an object, and is "+shown(n))
		return
	}
	if depth > maxDepth {
		b.stop(n.Line, path, fmt.Sprintf("has more than %d merge keys (<<) inside each other", maxDepth))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content) && !b.stopped; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if isMerge(key) {
			merged := []*yaml.Node{b.follow(value)} // an object, or a list of objects, of which the first one wins
			if merged[0].Kind == yaml.SequenceNode {
				merged = merged[0].Content
			}
			for _, m := range slices.Backward(merged) {
				b.collect(all, path, m, known, depth+1)
			}
			continue
		}
		key, value = b.follow(key), b.follow(value)
		name, at := key.Value, under(path, key.Value)
		first, twice := lines[name]
		switch {
		case key.Kind != yaml.ScalarNode || !isText(key):
			b.add(key.Line, path, FieldNotText, key.Value, fmt.Sprintf("has a field whose name is no text, but %s", shown(key)))
		case twice:
			b.add(key.Line, at, Other, "", fmt.Sprintf("is a duplicate; the first is in line %d", first))
		case slices.Contains(known, name):
			lines[name] = key.Line
			put(all, field{at, name, key.Line, []*yaml.Node{value}})
		case slices.Contains(ownFields, name):
			b.add(key.Line, at, Other, name, "is a field of rate_limit, and not of this object")
		case name == "floor":
			b.add(key.Line, at, Other, name, "is a field of a descriptor, and not of this object")
		case slices.Contains(everyField, name):
			lines[name] = key.Line
			b.warn(key.Line, at, "has no effect; the fields of this object are "+strings.Join(known, ", "))
		default:
			text := "is not a field; the fields are " + strings.Join(known, ", ")
			if word := near(name, known); word != "" {
				text = "is not a field; is it " + word + "?"
			}
			b.add(key.Line, at, UnknownField, name, text)
		}
	}
}

// put adds a field. It replaces a field of the same name, from a merge key. Only a rate_limit and metadata need the values
// before their own.
func put(all *[]field, f field) {
	i := slices.IndexFunc(*all, func(g field) bool { return g.name == f.name })
	if i < 0 {
		*all = append(*all, f)
		return
	}
	if f.name == "rate_limit" || f.name == "metadata" {
		f.nodes = append((*all)[i].nodes, f.nodes...)
	}
	(*all)[i] = f
}

// follow returns the value that an alias stands for, or the value itself. It counts values.
func (b *builder) follow(n *yaml.Node) *yaml.Node {
	if b.visits++; b.visits > maxVisits {
		b.stop(n.Line, "", fmt.Sprintf("makes more than %d values in all files with its aliases", maxVisits))
	}
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// isPlain reports whether a value is text without quotation marks, a block or a tag.
func isPlain(n *yaml.Node) bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Kind == yaml.ScalarNode && n.Style&(quoted|yaml.TaggedStyle) == 0
}

// isMerge reports whether a key is the merge key.
func isMerge(n *yaml.Node) bool { return isPlain(n) && n.Value == "<<" }

// isNull reports whether a value is null, in the words of YAML 1.1.
func isNull(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || !isPlain(n) && !tagged(n, "!!null") {
		return false
	}
	return slices.Contains([]string{"", "~", "null", "Null", "NULL"}, n.Value)
}

// tagged reports whether a value has a tag that is written in the file.
func tagged(n *yaml.Node, tag string) bool {
	return n.Style&yaml.TaggedStyle != 0 && n.ShortTag() == tag
}

// isText reports whether a scalar is text for a parser of YAML 1.1, and not a number, a boolean or null.
func isText(n *yaml.Node) bool {
	if !isPlain(n) {
		return n.Style&yaml.TaggedStyle == 0 || tagged(n, "!!str")
	}
	if _, ok := boolean(n); ok || isNull(n) {
		return false
	}
	_, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
	_, number := integer(n)
	return err != nil && !number
}

// boolean returns a value of the words of YAML 1.1.
func boolean(n *yaml.Node) (value, ok bool) {
	if !isPlain(n) && !tagged(n, "!!bool") {
		return false, false
	}
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// integer returns a whole number in the forms of YAML 1.1: 100, 1_000, 0x64, 0b11, 0o17 and 017.
func integer(n *yaml.Node) (value int64, ok bool) {
	if !isPlain(n) && !tagged(n, "!!int") || n.Value == "" || strings.IndexByte("+-0123456789", n.Value[0]) < 0 {
		return 0, false
	}
	value, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	return value, err == nil
}

// text returns the value of a text, as written. Null is the empty text.
func (b *builder) text(f field) string {
	n := f.value()
	switch {
	case n == nil:
		return ""
	case n.Kind != yaml.ScalarNode || n.Style&yaml.TaggedStyle != 0 && !tagged(n, "!!str") && !tagged(n, "!!int") && !tagged(n, "!!bool"):
		b.add(n.Line, f.path, Other, "", "must be a text, and is "+shown(n))
		return ""
	}
	return n.Value
}

// boolean returns the value of a boolean. Null is false.
func (b *builder) boolean(f field) (value bool) {
	if n := f.value(); n != nil {
		var ok bool
		if value, ok = boolean(n); !ok {
			b.add(n.Line, f.path, Other, "", "must be true or false, and is "+shown(n))
		}
	}
	return value
}

// integer returns the value of a whole number from lo to hi. Null is 0. Ok reports whether it is valid.
func (b *builder) integer(f field, lo, hi int64) (value int64, ok bool) {
	n := f.value()
	if n == nil {
		return 0, true
	}
	value, ok = integer(n)
	if !ok || value < lo || value > hi {
		b.add(n.Line, f.path, Other, "", fmt.Sprintf("must be a whole number from %d to %d, and is %s", lo, hi, shown(n)))
		return 0, false
	}
	return value, true
}

// shown returns a value for an error.
func shown(n *yaml.Node) string {
	tag := ""
	if n.Style&yaml.TaggedStyle != 0 {
		tag = abridged(n.Tag) + " "
	}
	switch {
	case n.Kind == yaml.MappingNode:
		return tag + "an object"
	case n.Kind == yaml.SequenceNode:
		return tag + "a list"
	case isNull(n):
		return tag + "null"
	case isPlain(n) && !isText(n):
		return abridged(n.Value)
	}
	return tag + strconv.Quote(abridged(n.Value))
}

// under returns the path of a field inside another.
func under(path, name string) string {
	name = abridged(name)
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' }) {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// abridged bounds the length of a text that an error quotes.
func abridged(s string) string {
	const most = 80 // bytes
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// plain returns a name without differences that do not matter to near.
func plain(name string) string { return separators.Replace(strings.ToLower(name)) }

// near returns the word that a name probably means; empty: none.
func near(name string, words []string) string {
	if len(name) > 40 {
		return ""
	}
	best, word := 3, ""
	name = plain(name)
	for _, w := range words {
		if d := distance(name, plain(w)); d < best && d*3 <= len(w) {
			best, word = d, w
		}
	}
	return word
}

// distance returns the number of bytes to insert, delete or replace between two texts (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
