package limitfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// pkg begins the errors of this package.
const pkg = "limitfile"

// maxViolations is the number of violations in one error. After them, the rest of a file is not checked.
const maxViolations = 100

// builder makes a File of Nodes.
type builder struct {
	name string
	bad  []violation
	more bool // than maxViolations; all loops over a file end
}

// violation is a violation in a line.
type violation struct {
	line int
	what hybridlimit.Violation
}

// Build makes a File from the values of a file, which a parser of any format has read. Its errors are those of Parse.
func Build(name string, root Node) (*File, error) {
	b := &builder{name: name}
	f := &File{name: name, limiters: map[string]*limiter{}}
	if b.object("", root, root.Line) {
		for _, m := range b.members("", root) {
			if b.more {
				break
			}
			if !adapter.CheckName(m.Name) {
				b.add(m.Line, under("", m.Name), m.Value.shown(), "must have a name of the form [A-Za-z0-9_.-]{1,128}")
				continue
			}
			f.limiters[m.Name] = b.limiter(m)
		}
	}
	if err := b.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// err returns the violations in the order of their lines.
func (b *builder) err() error {
	slices.SortStableFunc(b.bad, func(x, y violation) int { return x.line - y.line })
	var bad adapter.Violations
	for _, v := range b.bad {
		bad = append(bad, v.what)
	}
	if b.more {
		bad.Add(b.name, asWritten(fmt.Sprint(maxViolations, " violations")),
			"are listed; the check of the file stopped after them; correct these first")
	}
	return bad.Err(pkg)
}

// add notes a violation of a field in a line.
func (b *builder) add(line int, field string, value any, problem string) {
	if len(b.bad) == maxViolations {
		b.more = true
		return
	}
	at := fmt.Sprint(b.name, ":", line)
	if field != "" {
		at += ": " + field
	}
	b.bad = append(b.bad, violation{line, hybridlimit.Violation{Field: at, Value: value, Problem: problem}})
}

// object reports whether a value is an object, and notes a violation otherwise.
func (b *builder) object(field string, n Node, line int) bool {
	if n.Kind != Object {
		b.add(max(line, n.Line), field, n.shown(), "must be an object")
	}
	return n.Kind == Object
}

// plenty is the number of members up to which memory is made for all at once. A wrong file has many of one name.
const plenty = 1 << 12

// members returns the members of an object. Of duplicate names it returns the first, and notes a violation.
func (b *builder) members(field string, n Node) []Member {
	first := make(map[string]int, min(len(n.Members), plenty))
	kept := make([]Member, 0, min(len(n.Members), plenty))
	for _, m := range n.Members {
		if b.more {
			break
		}
		at := under(field, m.Name)
		switch line, twice := first[m.Name]; {
		case twice:
			b.add(m.Line, at, m.Value.shown(), fmt.Sprintf("is a duplicate; the first is in line %d", line))
			continue
		case strings.ContainsRune(m.Name, utf8.RuneError):
			b.add(m.Line, at, m.Value.shown(), "has a name with U+FFFD, which stands for a character that cannot be read")
		}
		first[m.Name] = m.Line
		kept = append(kept, m)
	}
	return kept
}

// limiter reads the settings of one limiter.
func (b *builder) limiter(of Member) *limiter {
	l := &limiter{
		plans: map[string]hybridlimit.Limit{}, planOf: map[string]string{},
		line: of.Line, lines: map[string]int{},
	}
	if !b.object(of.Name, of.Value, of.Line) {
		return l
	}
	fields := b.members(of.Name, of.Value)
	var limits []found
	// Plans come first, because keys refer to them from any place.
	order := func(m Member) int { return slices.Index(fieldNames, m.Name) }
	slices.SortStableFunc(fields, func(x, y Member) int { return order(x) - order(y) })
	for _, m := range fields {
		if b.more {
			break
		}
		at := under(of.Name, m.Name)
		l.lines[m.Name] = m.Value.Line
		switch m.Name {
		case "limit":
			if limit, ok := b.limit(at, m.Value); ok {
				l.settings.Limit = limit
				limits = append(limits, found{at, m.Value, limit})
			}
		case "plans":
			limits = append(limits, b.plans(at, m, l)...)
		case "keys":
			limits = append(limits, b.keys(at, m, l)...)
		case "shadow":
			if m.Value.Kind != Bool {
				b.add(m.Value.Line, at, m.Value.shown(), "must be true or false")
				continue
			}
			l.settings.Shadow = new(m.Value.Text == "true")
		case "mode":
			l.settings.Mode = choice(b, at, m.Value, modes)
		case "fallback":
			l.settings.Fallback = choice(b, at, m.Value, fallbacks)
		default:
			b.add(m.Line, at, m.Value.shown(), "is not a field; the fields are "+strings.Join(fieldNames, ", "))
		}
	}
	b.sameAlgorithm(limits)
	return l
}

// fieldNames are the fields of a limiter. The order is that in which they are read.
var fieldNames = []string{"limit", "plans", "keys", "shadow", "mode", "fallback"}

// found is a limit that a limiter's settings have.
type found struct {
	field string
	node  Node
	limit hybridlimit.Limit
}

// plans reads the named limits.
func (b *builder) plans(field string, of Member, l *limiter) (limits []found) {
	if !b.object(field, of.Value, of.Line) {
		return nil
	}
	for _, m := range b.members(field, of.Value) {
		if b.more {
			break
		}
		at := under(field, m.Name)
		if !mayBePlan(m.Name) {
			b.add(m.Line, at, m.Value.shown(), "must have a name of the form [A-Za-z0-9_.-]{1,128} that is no limit itself")
			continue
		}
		limit, ok := b.limit(at, m.Value)
		l.plans[m.Name] = limit // also an invalid one: the keys that refer to it are not wrong
		if ok {
			limits = append(limits, found{at, m.Value, limit})
		}
	}
	return limits
}

// mayBePlan reports whether a text can be the name of a plan. A limit has a slash or spaces, or is "unlimited" or
// "blocked".
func mayBePlan(text string) bool {
	_, err := hybridlimit.ParseLimit(text)
	return err != nil && adapter.CheckName(text)
}

// keys reads the limits of keys.
func (b *builder) keys(field string, of Member, l *limiter) (limits []found) {
	if !b.object(field, of.Value, of.Line) {
		return nil
	}
	members := b.members(field, of.Value)
	if len(members) > 0 {
		l.settings.Keys = make(map[string]hybridlimit.Limit, len(members))
	}
	for _, m := range members {
		if b.more {
			break
		}
		at := under(field, m.Name)
		l.lines["keys."+m.Name] = m.Value.Line
		if m.Name == "" {
			b.add(m.Line, at, m.Value.shown(), "must not be the limit of an empty key")
			continue
		}
		if name := m.Value.Text; m.Value.Kind == Text && mayBePlan(name) {
			plan, ok := l.plans[name]
			if !ok {
				b.add(m.Value.Line, at, m.Value.shown(), "is neither a plan of the limiter nor a limit")
				continue
			}
			l.settings.Keys[m.Name], l.planOf[m.Name] = plan, name
			continue
		}
		if limit, ok := b.limit(at, m.Value); ok {
			l.settings.Keys[m.Name] = limit
			limits = append(limits, found{at, m.Value, limit})
		}
	}
	return limits
}

// limit reads a limit.
func (b *builder) limit(field string, n Node) (limit hybridlimit.Limit, ok bool) {
	if n.Kind != Text {
		b.add(n.Line, field, n.shown(), `must be a limit as text, such as "100/s burst 200"`)
		return limit, false
	}
	limit, err := hybridlimit.ParseLimit(n.Text)
	if err == nil {
		return limit, true
	}
	b.add(n.Line, field, n.shown(), problemOf(err))
	return limit, false
}

// problemOf returns the problem in an error of ParseLimit. Its first violation is of the whole text, and others are
// details.
func problemOf(err error) string {
	invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
	if !ok {
		return err.Error()
	}
	problem := invalid.Violations[0].Problem
	for i, v := range invalid.Violations[1:] {
		problem += map[bool]string{true: ": ", false: ", "}[i == 0] + v.String()
	}
	return problem
}

// sameAlgorithm notes a violation for each limit that counts in another way than the first. Limits that count nothing
// fit all others.
func (b *builder) sameAlgorithm(limits []found) {
	counts := limits[:0]
	for _, f := range limits {
		if a := f.limit.Algorithm; a != hybridlimit.AlgUnlimited && a != hybridlimit.AlgBlocked {
			counts = append(counts, f)
		}
	}
	for _, f := range counts {
		if b.more {
			break
		}
		if first := counts[0]; f.limit.Algorithm != first.limit.Algorithm {
			b.add(f.node.Line, f.field, f.node.shown(), fmt.Sprintf("must have the algorithm of %s in line %d, %v",
				first.field, first.node.Line, first.limit.Algorithm))
		}
	}
}

// The values of fields that have names.
var (
	modes     = []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact}
	fallbacks = numbered[hybrid.Fallback](int(fallback.NumKinds))
)

// numbered returns the values below n.
func numbered[T ~uint8](n int) (all []T) {
	for i := range n {
		all = append(all, T(i))
	}
	return all
}

// choice reads one of the named values; nil: none of them.
func choice[T fmt.Stringer](b *builder, field string, n Node, all []T) *T {
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = v.String()
	}
	if i := slices.Index(names, n.Text); i >= 0 && n.Kind == Text {
		return new(all[i])
	}
	b.add(n.Line, field, n.shown(), "must be one of "+strings.Join(names, ", "))
	return nil
}

// under returns the name of a field inside another. A name that is no plain word is quoted.
func under(field, name string) string {
	if !adapter.CheckName(name) {
		name = fmt.Sprintf("%q", abridged(name))
	}
	if field == "" {
		return name
	}
	return field + "." + name
}

// abridged bounds the length of a text that an error quotes.
func abridged(s string) string {
	const most = 80 // bytes
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
