package restore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

const (
	// settled is the time (µs) after which units that were leased are used, or in Redis again, or lost for good. A state
	// younger than that counts as new. It is also the least time between two questions about a key.
	settled = int64(5e6)
	// patience bounds one question.
	patience = 5 * time.Second
	// workers is the largest number of questions at a time.
	workers = 16
)

// Sight is the state of a key in an answer of Redis.
type Sight struct {
	Key   string
	Plan  *account.Plan // of the op that was answered
	Begin int64         // µs of Redis time: the begin of the period
	Born  int64         // µs of Redis time: when the state began
	Now   int64         // µs of Redis time
	Used  int64         // units that Redis counts in the period
}

// Env is what an Asker needs of its limiter.
type Env struct {
	Keys int // the largest number of keys to remember
	Ask  func(ctx context.Context, key string, begin time.Time) (used int64, at time.Time, err error)
	// Tell tells Redis a view, which counts together with the units that Redis has counted since the state began. It
	// reports whether Redis has heard it.
	Tell   func(ctx context.Context, key string, p *account.Plan, v algo.View) bool
	Failed func(key string, err error)
	Told   func(key string)
}

// Asker asks about each key once in a period, and once more after each later loss. It is safe for concurrent use.
type Asker struct {
	env    Env
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields below, up to wg; not held during a question
	keys    *simplelru.LRU[string, *memory]
	waiting []Sight
	running int // workers
	closed  bool
	wg      sync.WaitGroup
}

// memory is what an Asker knows of a key.
type memory struct {
	begin int64 // of the period
	done  bool  // asked and told, or on the way
	first int64 // µs of Redis time of the first sight
	used  int64 // units that Redis counted at the last sight
	at    int64 // µs of Redis time of the last sight
	// The question is due at due, in µs of Redis time. The units that Redis counted settled before, base, are among those
	// of the answer, and must not count twice.
	base, due int64
}

// New returns an Asker. It has no goroutine until there is a question.
func New(env Env) *Asker {
	keys, err := simplelru.NewLRU[string, *memory](env.Keys, nil)
	if err != nil {
		panic(err) // the size is above 0
	}
	a := &Asker{env: env, keys: keys}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Close ends the questions, and waits for them.
func (a *Asker) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.wg.Wait()
}

// See asks about the key of a state that began in its period, in a goroutine of the Asker. A nil Asker does nothing.
//
// The units of the answer count beside those that Redis has counted since the state began. So the answer to a question
// about a state that is not new is lowered by the units that Redis counted 5 s before. An answer too early for that
// waits for the next sight of the key.
func (a *Asker) See(s Sight) {
	if a == nil || s.Born < s.Begin {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.keys.Get(s.Key)
	if !ok || m.begin != s.Begin || s.Born > m.first { // of another period, or lost once more
		m = &memory{begin: s.Begin, first: s.Now}
		if s.Now-s.Born >= settled {
			m.base, m.due = s.Used, s.Now+settled
		}
		a.keys.Add(s.Key, m)
	}
	m.used, m.at = s.Used, s.Now
	if m.done || s.Now < m.due || len(a.waiting) >= a.env.Keys || a.closed {
		return
	}
	m.done = true
	s.Used = m.base
	a.waiting = append(a.waiting, s)
	if a.running < workers {
		a.running++
		a.wg.Add(1)
		go a.work()
	}
}

// work asks until no key waits.
func (a *Asker) work() {
	defer a.wg.Done()
	for {
		a.mu.Lock()
		if len(a.waiting) == 0 || a.closed {
			a.waiting = nil
			a.running--
			a.mu.Unlock()
			return
		}
		s := a.waiting[0]
		a.waiting = a.waiting[1:]
		a.mu.Unlock()
		a.handle(s)
	}
}

// handle asks about one key, and tells Redis.
func (a *Asker) handle(s Sight) {
	used, at, err := a.ask(s)
	if err == nil && used > s.Used {
		if a.env.Tell(a.ctx, s.Key, s.Plan, s.view(used, at)) {
			a.env.Told(s.Key)
			return
		}
		err = errors.New("no answer of Redis")
	}
	if err == nil || a.ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	if m, ok := a.keys.Get(s.Key); ok && m.begin == s.Begin {
		m.done, m.base, m.due = false, m.used, m.at+settled
	}
	a.mu.Unlock()
	a.env.Failed(s.Key, err)
}

// ask runs the callback of the user.
func (a *Asker) ask(s Sight) (used int64, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v", p)
		}
	}()
	begin := time.UnixMicro(s.Begin).UTC()
	used, at, err = a.env.Ask(ctx, s.Key, begin)
	switch {
	case err != nil:
	case used < 0:
		err = fmt.Errorf("a number of %d used units is negative", used)
	case used > 0 && at.Before(begin):
		err = fmt.Errorf("the time of the count, %v, is before the begin of the period, %v", at, begin)
	}
	return used, at, err
}

// view returns the answer as the view of a state of another birth. Such a view counts together with the units since the
// birth of the state. It is not newer than that birth, so that a Reset after it makes it void.
func (s Sight) view(used int64, at time.Time) algo.View {
	w := s.Plan.Window
	return algo.View{Level: w.Cap - min(used-s.Used, 2*w.Rate)*w.Unit, At: max(s.Begin, min(at.UnixMicro(), s.Born)), Born: 1}
}
