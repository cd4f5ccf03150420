package notice

import (
	"hash/maphash"
	"log/slog"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// watch is the state that all views of a Limiter share.
type watch struct {
	on     func(Crossing)
	at     []float64 // the thresholds, the lowest first
	all    uint32    // the mask of all thresholds
	lowest float64
	name   string
	whole  adapter.Describer // the limiter without a floor
	peeks  peeker            // of whole
	self   *Limiter          // a view of whole
	views  atomic.Pointer[[]*Limiter]

	// table has the keys that were used last, so that a call takes no lock. Each key has one place, and keys with one
	// place replace each other.
	seed   maphash.Seed
	table  []atomic.Pointer[entry] // a power of two
	shards []shard                 // a power of two

	// tick is the number of seconds that the goroutine has been awake. The first call of a key in each of them takes the
	// lock of its shard.
	tick   atomic.Uint64
	asleep atomic.Bool
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}

	closing sync.Once
	closed  atomic.Bool
	closeAs error // of Close; written before done

	sending sync.Mutex // guards ended, and is held while crossings are sent
	ended   bool       // what is sent from now on is not told
	told    chan Crossing

	counts counts
	lines  lines
}

// entry is a key in memory.
type entry struct {
	key  string
	hash uint64
	last atomic.Uint64            // tick of the last call
	view atomic.Pointer[Limiter]  // of the first call in that tick
	dim  atomic.Bool              // a class had no units left, so it did not see the rest of the limit
	term atomic.Pointer[terms]    // the key's limit; nil: not asked yet
	told atomic.Pointer[twoMasks] // nil: no crossing yet

	mu     sync.Mutex // is held while told changes
	listed bool       // the goroutine has it, or will find it in fresh; guarded by the shard's mu
	plan   plan       // of the goroutine
}

// shard is a part of the keys under one lock.
type shard struct {
	mu     sync.Mutex
	keys   *simplelru.LRU[string, *entry]
	fresh  []*entry // listed, and not yet found by the goroutine
	listed int      // entries of the shard with listed set
	room   int

	_ [64]byte // keeps neighbours' locks off this cache line
}

// mostPlaces is the largest size of the table: half a megabyte.
const mostPlaces = 1 << 16

func newWatch(limiter hybridlimit.Limiter, cfg Config) *watch {
	if cfg.At == nil {
		cfg.At = defaultAt
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = defaultMaxKeys
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	w := &watch{
		on: cfg.On, at: slices.Sorted(slices.Values(cfg.At)), all: 1<<len(cfg.At) - 1,
		name: limiter.(adapter.Describer).Name(), whole: wholeOf(limiter),
		seed: maphash.MakeSeed(), table: make([]atomic.Pointer[entry], 1<<bits.Len(uint(2*min(cfg.MaxKeys, mostPlaces/2)-1))),
		shards: make([]shard, shards.Count(cfg.MaxKeys, runtime.GOMAXPROCS(0))),
		wake:   make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		told: make(chan Crossing, mostWaiting),
	}
	w.lowest, w.peeks = w.at[0], peekerOf(w.whole)
	w.lines.open(cfg.Logger, w.name)
	w.tick.Store(1) // an entry that is new has 0
	w.asleep.Store(true)
	for i := range w.shards {
		s := &w.shards[i]
		s.room = cfg.MaxKeys / len(w.shards)
		if i < cfg.MaxKeys%len(w.shards) {
			s.room++
		}
		s.keys, _ = simplelru.NewLRU(s.room, w.evicted) // the error is for a room below 1
	}
	w.self = w.of(w.whole)
	w.views.Store(&[]*Limiter{w.of(limiter)})
	return w
}

// evicted is called under the lock of the shard. The entry may still be in the list of the goroutine, which then looks
// at it as at any other.
func (w *watch) evicted(_ string, e *entry) {
	w.place(e.hash).CompareAndSwap(e, nil)
	w.counts.evicted.Add(1)
	if !e.listed {
		w.counts.lost.Add(e.missed())
	}
}

func (w *watch) place(hash uint64) *atomic.Pointer[entry] {
	return &w.table[hash&uint64(len(w.table)-1)]
}

func (w *watch) shard(hash uint64) *shard { return &w.shards[hash>>32&uint64(len(w.shards)-1)] }

// weight says what a Result shows of the shared limit.
type weight uint8

const (
	nothing weight = iota // and no later one will: no limit decided, or none that counts
	later                 // nothing, but units are used that a later Result shows
	estimate
	exact
)

var weights = [adapter.NumSources]weight{
	hybridlimit.SourceLocal:     exact,
	hybridlimit.SourceLease:     estimate,
	hybridlimit.SourceCredit:    estimate,
	hybridlimit.SourceRedis:     exact,
	hybridlimit.SourceDenyCache: estimate,
	hybridlimit.SourceRateLease: estimate,
	hybridlimit.SourceTimeout:   later,
	hybridlimit.SourceFallback:  later,
	hybridlimit.SourcePause:     later,
}

func weightOf(s hybridlimit.Source) weight {
	if int(s) < len(weights) {
		return weights[s]
	}
	return nothing
}

// note compares a Result with the thresholds. It is the fast path: a call of a key that is in use, below the lowest
// threshold, reads the table and two numbers.
func (l *Limiter) note(key string, res *hybridlimit.Result) {
	weight := weightOf(res.Source)
	if weight == nothing {
		return
	}
	w := l.watch
	hash := maphash.String(w.seed, key)
	e := w.place(hash).Load()
	if e == nil || e.last.Load() != w.tick.Load() || e.key != key {
		if e = l.use(hash, key); e == nil {
			return
		}
	}
	if weight != later && float64(res.Limit-res.Remaining) >= w.lowest*float64(res.Limit)-rounding {
		l.compare(e, res)
	}
}

// use returns the entry of a key whose first call in this tick it is. It returns nil after Close.
func (l *Limiter) use(hash uint64, key string) *entry {
	w := l.watch
	if w.closed.Load() {
		return nil
	}
	s := w.shard(hash)
	s.mu.Lock()
	e, ok := s.keys.Get(key)
	if !ok {
		e = &entry{key: strings.Clone(key), hash: hash} // the caller's may be a piece of a request
		s.keys.Add(e.key, e)
	}
	e.view.Store(l)
	e.last.Store(w.tick.Load())
	listed := s.list(e)
	s.mu.Unlock()
	w.place(hash).Store(e)
	if !listed {
		w.counts.skipped.Add(1)
		w.lines.skipped()
	}
	if w.asleep.Load() {
		w.rouse()
	}
	return e
}

// list puts an entry into the list of the goroutine, unless keys come faster than they are looked at. Call it under the
// lock of the shard.
func (s *shard) list(e *entry) bool {
	switch {
	case e.listed:
	case s.listed/2 >= s.room:
		return false
	default:
		e.listed = true
		s.listed++
		s.fresh = append(s.fresh, e)
	}
	return true
}

// unlist takes an entry out of the list, unless it was used since a tick.
func (w *watch) unlist(e *entry, since uint64) bool {
	s := w.shard(e.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.last.Load() != since {
		return false
	}
	e.listed = false
	s.listed--
	return true
}

// found appends the entries that were listed since the last call.
func (w *watch) found(to []*entry) []*entry {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		to = append(to, s.fresh...)
		clear(s.fresh)
		s.fresh = s.fresh[:0]
		s.mu.Unlock()
	}
	return to
}

// inMemory appends all entries that are in memory.
func (w *watch) inMemory(to []*entry) []*entry {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		to = append(to, s.keys.Values()...)
		s.mu.Unlock()
	}
	return to
}

func (w *watch) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close looks at the keys that were used in the last seconds, for at most a second in all, tells what is untold, and
// ends the goroutine. It waits for On. Close it before the limiter, which must answer these looks. A key without an
// answer is an error. Calls that begin later are decided, and not watched. Close is idempotent.
func (l *Limiter) Close() error {
	w := l.watch
	w.closing.Do(func() {
		w.closed.Store(true)
		w.tick.Add(1) // calls no longer find their key
		close(w.stop)
	})
	<-w.done
	return w.closeAs
}
