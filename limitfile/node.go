package limitfile

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
