package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/structpb"
)

// The bounds of metadata, in bytes of texts and 8 for each value. Each answer repeats those of its rules. An alias counts
// as often as it stands there.
const (
	maxMetadata    = 16 << 10 // of a rule
	maxAllMetadata = 16 << 20 // of all rules
)

// metadata reads the metadata of a descriptor: an object with any fields. An empty one is none. Values of merge keys (<<)
// around the descriptor come first.
func (b *builder) metadata(f field) *structpb.Struct {
	m := metadataReader{b: b, left: maxMetadata}
	all := map[string]*structpb.Value{}
	for _, n := range f.objects() {
		if n.Kind != yaml.MappingNode {
			b.add(n.Line, f.path, Other, "", "must be an object, and is "+shown(n))
			return nil
		}
		if !m.object(n, f.path, 0, false, all) {
			return nil
		}
	}
	if b.metadataBytes += maxMetadata - m.left; b.metadataBytes > maxAllMetadata {
		b.stop(f.line, f.path, fmt.Sprintf("makes the metadata of all rules larger than %d bytes", maxAllMetadata))
		return nil
	}
	switch {
	case m.left < 0:
		b.add(f.line, f.path, Other, "", fmt.Sprintf("is larger than %d bytes, and each answer repeats it", maxMetadata))
		return nil
	case len(all) == 0:
		return nil
	}
	return &structpb.Struct{Fields: all}
}

// metadataReader reads values in the words of YAML 1.1.
type metadataReader struct {
	b    *builder
	left int // bytes
}

// object adds the fields of an object to others, in the order of the file: a merge key (<<) replaces what stands before
// it, as in Envoy's service. Inside another value, names are values too. It reports whether all are valid.
func (m *metadataReader) object(n *yaml.Node, path string, depth int, inside bool, to map[string]*structpb.Value) (valid bool) {
	if depth > maxDepth {
		m.b.stop(n.Line, path, fmt.Sprintf("has more than %d objects and lists inside each other", maxDepth))
		return false
	}
	own := map[string]bool{}
	for i := 0; i+1 < len(n.Content) && !m.b.stopped && m.left >= 0; i += 2 {
		key, value := n.Content[i], m.b.follow(n.Content[i+1])
		if isMerge(key) {
			merged := []*yaml.Node{value} // an object, or a list of objects, of which the first one wins
			if value.Kind == yaml.SequenceNode {
				merged = value.Content
			}
			for _, one := range slices.Backward(merged) {
				if one = m.b.follow(one); one.Kind != yaml.MappingNode {
					m.b.add(one.Line, path, Other, "", "must merge objects, and merges "+shown(one))
					return false
				}
				if !m.object(one, path, depth+1, inside, to) {
					return false
				}
			}
			continue
		}
		if key = m.b.follow(key); key.Kind != yaml.ScalarNode {
			m.b.add(key.Line, path, Other, "", "has a field whose name is "+shown(key))
			return false
		}
		name := key.Value
		if inside { // there, such a name is a value of YAML 1.1
			name = nameOf(key)
		}
		if own[name] {
			m.b.add(key.Line, under(path, name), Other, "", "is a duplicate")
			return false
		}
		own[name] = true
		m.left -= len(name)
		v := m.value(value, under(path, name), depth+1)
		if v == nil {
			return false
		}
		to[name] = v
	}
	return true
}

// nameOf returns the name of a field as a text of its value: true for y, and 16 for 0x10.
func nameOf(n *yaml.Node) string {
	if v, ok := boolean(n); ok {
		return strconv.FormatBool(v)
	}
	if v, ok := integer(n); ok {
		return strconv.FormatInt(v, 10)
	}
	if v, ok := number(n); ok {
		return fmt.Sprint(v)
	}
	return n.Value
}

// value returns any value; nil after a violation.
func (m *metadataReader) value(n *yaml.Node, path string, depth int) *structpb.Value {
	m.left -= 8
	switch n.Kind {
	case yaml.MappingNode:
		fields := map[string]*structpb.Value{}
		if !m.object(n, path, depth, true, fields) {
			return nil
		}
		return structpb.NewStructValue(&structpb.Struct{Fields: fields})
	case yaml.SequenceNode:
		if depth > maxDepth {
			m.b.stop(n.Line, path, fmt.Sprintf("has more than %d objects and lists inside each other", maxDepth))
		}
		list := &structpb.ListValue{}
		for i := 0; i < len(n.Content) && !m.b.stopped && m.left >= 0; i++ {
			v := m.value(m.b.follow(n.Content[i]), fmt.Sprintf("%s[%d]", path, i), depth+1)
			if v == nil {
				return nil
			}
			list.Values = append(list.Values, v)
		}
		return structpb.NewListValue(list)
	}
	return m.scalar(n, path)
}

// scalar returns a value without others inside.
func (m *metadataReader) scalar(n *yaml.Node, path string) *structpb.Value {
	if isNull(n) {
		return structpb.NewNullValue()
	}
	if v, ok := boolean(n); ok {
		return structpb.NewBoolValue(v)
	}
	if v, ok := integer(n); ok {
		return structpb.NewNumberValue(float64(v))
	}
	if v, ok := number(n); ok {
		return structpb.NewNumberValue(v)
	}
	if m.left -= len(n.Value); !utf8.ValidString(n.Value) {
		m.b.add(n.Line, path, Other, "", "must be UTF-8")
		return nil
	}
	return structpb.NewStringValue(n.Value)
}

// number returns a finite number with a point or an exponent.
func number(n *yaml.Node) (value float64, ok bool) {
	if !isPlain(n) && !tagged(n, "!!float") || n.Value == "" || strings.IndexByte("+-.0123456789", n.Value[0]) < 0 {
		return 0, false
	}
	value, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
	return value, err == nil && value-value == 0 // neither infinite nor NaN
}
