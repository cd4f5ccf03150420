// Package groups knows which processes share a limiter. A group is the set of the limiters of one process: Redis counts
// the processes of each group, and has a directory of the groups. So N of a limiter is the sum over the groups that
// have it. The package reads no clock and sends nothing.
//
// A limiter with classes is a term "<name>*<classes>" in the names of its group, and the id of the group ends with the
// largest number of classes. So a process that does not know the names counts at least as many classes as there are.
//
// More kinds of terms describe the group: "=<name>=<limit>", the limit of a limiter with "~" for spaces,
// "^<name>^<parts>", the largest number of parts of its split keys, and "#<tags>", the number of tags. They are for
// processes and operators who compare limits, and change no count. No name of a limiter begins with these characters. A
// group whose names would be too long has no such terms.
package groups

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// idBytes is the number of bytes of a hash that name a group.
const idBytes = 16

// idLetters is the number of letters in which they are written. The digits behind them are the largest number of
// classes.
const idLetters = (idBytes*8 + 5) / 6

// MaxClasses is the largest number of classes of a limiter.
const MaxClasses = 99

// maxNames is the largest number of groups outside the directory whose names are kept.
const maxNames = 1000

// Term returns the text of a limiter in the names of a group: its name, and the number of its classes if that is more
// than one.
func Term(name string, classes int) string {
	if classes < 2 {
		return name
	}
	return name + "*" + strconv.Itoa(classes)
}

// LimitTerm returns the text of the limit of a limiter in the names of a group. No text of a limit has a "~".
func LimitTerm(name, limit string) string {
	return "=" + name + "=" + strings.ReplaceAll(limit, " ", "~")
}

// SplitTerm returns the text of the largest number of parts of the split keys of a limiter in the names of a group. 0:
// the limiter splits keys, and has had none of those. A limiter that splits no keys has no term.
func SplitTerm(name string, parts int64) string {
	return "^" + name + "^" + strconv.FormatInt(parts, 10)
}

// TagsTerm returns the text of the number of tags in the names of a group.
func TagsTerm(tags int) string { return "#" + strconv.Itoa(tags) }

// Names is what the names of a group say.
type Names struct {
	Tags    int               // HubConfig.Tags; 0: not known
	Classes map[string]int64  // by limiter
	Limits  map[string]string // by limiter, as text; without an entry: not known
	Parts   map[string]int64  // by limiter, the largest number of parts of its split keys; 0: not known
}

// read adds a term.
func (n *Names) read(term string) {
	switch {
	case strings.HasPrefix(term, "#"):
		n.Tags, _ = strconv.Atoi(term[1:]) // 0 if no version has written it
	case strings.HasPrefix(term, "="):
		if name, limit, ok := strings.Cut(term[1:], "="); ok {
			n.Limits[name] = strings.ReplaceAll(limit, "~", " ")
		}
	case strings.HasPrefix(term, "^"):
		if name, parts, ok := strings.Cut(term[1:], "^"); ok {
			n.Parts[name], _ = strconv.ParseInt(parts, 10, 32) // 0 if no version has written it
		}
	default:
		name, classes := split(term)
		n.Classes[name] = classes
	}
}

// split returns the name and the number of classes in a term. Text that Term cannot have written has the most classes.
func split(term string) (name string, classes int64) {
	name, digits, several := strings.Cut(term, "*")
	if !several {
		return name, 1
	}
	n, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || n < 2 || n > MaxClasses {
		return name, MaxClasses
	}
	return name, int64(n)
}

// Text returns the names of a group as Redis has them: its terms, sorted, and separated by spaces, which no name has.
func Text(terms []string) string {
	return strings.Join(slices.Sorted(slices.Values(terms)), " ")
}

// ID returns the id of the group with these terms: the first 128 bits of a SHA-256, in 22 letters of base64url, and the
// largest number of classes if that is more than one.
func ID(terms []string) string { return idOf(Text(terms)) }

func idOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	id := base64.RawURLEncoding.EncodeToString(sum[:idBytes])
	most := int64(1)
	for _, classes := range namesOf(text).Classes {
		most = max(most, classes)
	}
	if most > 1 {
		id += strconv.FormatInt(most, 10)
	}
	return id
}

// mostClasses returns the largest number of classes of the limiters of a group.
func mostClasses(id string) int64 {
	if len(id) <= idLetters {
		return 1
	}
	_, n := split("*" + id[idLetters:])
	return n
}

// Parse returns what the text of the names of a group says. It returns nil if the text is not that of the group.
func Parse(id, text string) *Names {
	if text == "" || idOf(text) != id {
		return nil
	}
	return namesOf(text)
}

func namesOf(text string) *Names {
	n := &Names{Classes: map[string]int64{}, Limits: map[string]string{}, Parts: map[string]int64{}}
	for term := range strings.SplitSeq(text, " ") {
		n.read(term)
	}
	return n
}

// Book is one process's knowledge of the groups of a deployment. The zero Book knows none. It has no lock.
type Book struct {
	version int64
	ids     []string          // of the directory
	names   map[string]*Names // by id, of the groups whose names are known
}

// Version returns the version of the directory; 0: none is known.
func (b *Book) Version() int64 { return b.version }

// Directory notes the directory.
func (b *Book) Directory(version int64, ids []string) {
	b.version, b.ids = version, ids
	if len(b.names) > maxNames+len(ids) {
		kept := make(map[string]*Names, len(ids))
		for _, id := range ids {
			if names := b.names[id]; names != nil {
				kept[id] = names
			}
		}
		b.names = kept
	}
}

// Named notes the names of a group. Text that is not that of the group has no effect.
func (b *Book) Named(id, text string) {
	names := Parse(id, text)
	if names == nil {
		return
	}
	if b.names == nil {
		b.names = map[string]*Names{}
	}
	b.names[id] = names
}

// Others returns the other groups of the directory that a process of the group own, with these limiters, must count:
// those that share a limiter, and those whose names are not known.
func (b *Book) Others(own string, limiters []string) (ids []string) {
	for _, id := range b.ids {
		if id != own && b.shares(id, limiters) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Nameless returns at most n groups of ids whose names are not known.
func (b *Book) Nameless(ids []string, n int) (out []string) {
	for _, id := range ids {
		if len(out) < n && b.names[id] == nil {
			out = append(out, id)
		}
	}
	return out
}

func (b *Book) shares(id string, limiters []string) bool {
	return b.names[id] == nil || slices.ContainsFunc(limiters, func(name string) bool { return b.may(id, name) })
}

// may reports whether a group may have a limiter.
func (b *Book) may(id, limiter string) bool {
	names := b.names[id]
	if names == nil {
		return true
	}
	_, has := names.Classes[limiter]
	return has
}

// Count is the answer to one heartbeat: the processes of groups, at one time.
type Count struct {
	Own    int64    // of the group of the process
	Others []string // ids
	Alive  []int64  // processes, in the order of Others
}

// Complete reports whether a count includes each group that a process of the group own, with these limiters, must
// count.
func (b *Book) Complete(c Count, own string, limiters []string) bool {
	for _, id := range b.Others(own, limiters) {
		if !slices.Contains(c.Others, id) {
			return false
		}
	}
	return true
}

// Processes returns N of a limiter of the process's own group. It counts groups whose names are not known: an N that is
// too large is safe.
func (b *Book) Processes(c Count, limiter string) int64 {
	n := c.Own
	for i, id := range c.Others {
		if b.may(id, limiter) {
			n += c.Alive[i]
		}
	}
	return n
}

// Accounts is Processes with each process counted once for each of its classes of the limiter. classes is the number of
// classes in the process's own group. A group whose names are not known counts with the most classes of its limiters.
func (b *Book) Accounts(c Count, limiter string, classes int64) int64 {
	n := c.Own * classes
	for i, id := range c.Others {
		if names := b.names[id]; names != nil {
			n += c.Alive[i] * names.Classes[limiter]
		} else {
			n += c.Alive[i] * mostClasses(id)
		}
	}
	return n
}

// OtherLimit returns a limit, as text, that live processes of other groups have for a limiter, and that is not this
// one. It also returns the number of the processes that have it. Of several it is the one of most processes. Without
// one it returns "".
func (b *Book) OtherLimit(c Count, limiter, limit string) (other string, processes int64) {
	return others(b, c, func(names *Names) (string, bool) {
		text := names.Limits[limiter]
		return text, text != "" && text != limit
	})
}

// OtherParts is OtherLimit for the number of parts into which processes split keys: 1 for a process that splits none.
// If own is 0, or there is no other one, it returns 0.
func (b *Book) OtherParts(c Count, limiter string, own int64) (other, processes int64) {
	return others(b, c, func(names *Names) (int64, bool) {
		parts, splits := names.Parts[limiter]
		if !splits {
			parts = 1
		}
		return parts, names.Limits[limiter] != "" && own > 0 && parts > 0 && parts != own // without a limit, its terms are not known
	})
}

// others returns what most live processes of other groups say, of what counts, and their number. Of two it is the
// lesser one.
func others[T cmp.Ordered](b *Book, c Count, says func(*Names) (what T, counts bool)) (other T, processes int64) {
	of := map[T]int64{}
	for i, id := range c.Others {
		if names := b.names[id]; names != nil && c.Alive[i] > 0 {
			if what, counts := says(names); counts {
				of[what] += c.Alive[i]
			}
		}
	}
	for what, n := range of {
		if n > processes || n == processes && what < other {
			other, processes = what, n
		}
	}
	return other, processes
}
