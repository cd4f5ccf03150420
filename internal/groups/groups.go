// Package groups knows which processes share a limiter. A group is the set of the limiters of one process: Redis counts the
// processes of each group, and has a directory of the groups. So N of a limiter is the sum over the groups that have it. The
// package reads no clock and sends nothing.
package groups

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
)

// idBytes is the number of bytes of a hash that name a group.
const idBytes = 16

// maxNames is the largest number of groups outside the directory whose names are kept.
const maxNames = 1000

// Text returns the names of a group as Redis has them: sorted, and separated by spaces, which no name has.
func Text(limiters []string) string {
	return strings.Join(slices.Sorted(slices.Values(limiters)), " ")
}

// ID returns the id of the group with these names: the first 128 bits of a SHA-256, in 22 letters of base64url.
func ID(limiters []string) string { return idOf(Text(limiters)) }

func idOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:idBytes])
}

// Parse returns the limiters of a group from the text of its names. It returns nil if the text is not that of the group.
func Parse(id, text string) []string {
	if text == "" || idOf(text) != id {
		return nil
	}
	return strings.Split(text, " ")
}

// Book is one process's knowledge of the groups of a deployment. The zero Book knows none. It has no lock.
type Book struct {
	version int64
	ids     []string                       // of the directory
	names   map[string]map[string]struct{} // limiters by id, of the groups whose names are known
}

// Version returns the version of the directory; 0: none is known.
func (b *Book) Version() int64 { return b.version }

// Directory notes the directory.
func (b *Book) Directory(version int64, ids []string) {
	b.version, b.ids = version, ids
	if len(b.names) > maxNames+len(ids) {
		kept := make(map[string]map[string]struct{}, len(ids))
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
	limiters := Parse(id, text)
	if limiters == nil {
		return
	}
	if b.names == nil {
		b.names = map[string]map[string]struct{}{}
	}
	set := make(map[string]struct{}, len(limiters))
	for _, name := range limiters {
		set[name] = struct{}{}
	}
	b.names[id] = set
}

// Others returns the other groups of the directory that a process of the group own, with these limiters, must count: those that
// share a limiter, and those whose names are not known.
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
	_, has := names[limiter]
	return has || names == nil
}

// Count is the answer to one heartbeat: the processes of groups, at one time.
type Count struct {
	Own    int64    // of the group of the process
	Others []string // ids
	Alive  []int64  // processes, in the order of Others
}

// Complete reports whether a count includes each group that a process of the group own, with these limiters, must count.
func (b *Book) Complete(c Count, own string, limiters []string) bool {
	for _, id := range b.Others(own, limiters) {
		if !slices.Contains(c.Others, id) {
			return false
		}
	}
	return true
}

// Processes returns N of a limiter of the process's own group. It counts groups whose names are not known: an N that is too large
// is safe.
func (b *Book) Processes(c Count, limiter string) int64 {
	n := c.Own
	for i, id := range c.Others {
		if b.may(id, limiter) {
			n += c.Alive[i]
		}
	}
	return n
}
