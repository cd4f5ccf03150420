package split

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

// maxKeys bounds the keys that are watched. A key that is forgotten is used in its home part again.
const maxKeys = 1024

// Keys has the split keys of one class of a limiter. It is safe for concurrent use.
type Keys struct {
	of      func(key string) int // Config.Split
	process string
	tags    int
	most    atomic.Int64 // the largest number of parts of a key so far

	mu      sync.Mutex
	watched *simplelru.LRU[string, *watch]
}

// watch is the recent use of a key.
type watch struct {
	parts.Watch
	part  parts.Part // in use
	perNs float64    // the rate of the part, in units
}

// New returns the split keys of a limiter of a process. tags is HubConfig.Tags.
func New(of func(key string) int, process string, tags int) *Keys {
	watched, err := simplelru.NewLRU[string, *watch](maxKeys, nil)
	if err != nil {
		panic(err) // the size is above 0
	}
	return &Keys{of: of, process: process, tags: tags, watched: watched}
}

// Of returns the part of a key that is not in memory. It runs the callback of the user.
func (k *Keys) Of(key string, limit hybridlimit.Limit) (parts.Part, error) {
	n := k.of(key)
	if err := Check(key, limit, n, k.tags); err != nil || n < 2 {
		return parts.Part{}, err
	}
	for was := k.most.Load(); int64(n) > was && !k.most.CompareAndSwap(was, int64(n)); {
		was = k.most.Load()
	}
	return k.Now(key, parts.Home(k.process, key, n)), nil
}

// Now returns the part of a key that the process has moved to, of as many parts as p is one of; otherwise p. It runs no
// callback.
func (k *Keys) Now(key string, p parts.Part) parts.Part {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, ok := k.watched.Peek(key); ok && w.part.Of == p.Of {
		return w.part
	}
	return p
}

// Check returns an error if the limit of a key cannot be split into so many parts.
func Check(key string, limit hybridlimit.Limit, n, tags int) error {
	if err := parts.Check(limit, n, tags); err != nil {
		return fmt.Errorf("hybrid: Config.Split(%q): %w", key, err)
	}
	return nil
}

// Most returns the largest number of parts of a key so far; 0: no key is split.
func (k *Keys) Most() int64 { return k.most.Load() }

// Count notes that a part of a key has admitted or refused units. perNs is the rate of the part.
func (k *Keys) Count(key string, part parts.Part, perNs float64, units int64, refused bool, now int64) {
	if part.Of < 2 || units < 1 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	w, ok := k.watched.Get(key)
	if ok && w.part != part && w.part.Of == part.Of && !w.Over(now) { // a call that was decided before a move
		return
	}
	if !ok || w.part != part {
		w = &watch{Watch: parts.NewWatch(now), part: part}
		k.watched.Add(strings.Clone(key), w) // a key may be a piece of a request
	}
	w.perNs = perNs
	w.Count(units, refused)
}

// Look says that a process should look whether another part of a key has units.
type Look struct {
	Key      string
	From, To parts.Part
}

// Looks ends the windows that are over, and returns what to look for after them, in a fleet of n processes.
func (k *Keys) Looks(n, now int64) (all []Look) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.watched.Keys() {
		w, _ := k.watched.Peek(key)
		if to, ok := w.Look(w.part, w.perNs, n, rand.Float64, now); ok {
			all = append(all, Look{key, w.part, to})
		}
	}
	return all
}

// Moved notes that the process uses another part of a key from now on.
func (k *Keys) Moved(l Look, now int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched.Add(l.Key, &watch{Watch: parts.NewWatch(now), part: l.To})
}
