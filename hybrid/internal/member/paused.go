package member

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Paused is the pauses of keys that the deployment knows. The heartbeats carry them: see
// docs/decisions/0070-pauses-go-with-heartbeats.md. A key is known by its mark, lua.Names.Digest.
type Paused struct {
	told chan struct{} // that of Wanted: there is a pause to tell
	live atomic.Pointer[map[string]int64]

	mu      sync.Mutex          // guards writes of live, and the fields below
	tell    map[string]struct{} // marks of live that the next heartbeat must tell
	version int64               // of Redis's pauses, as last heard
}

// MostPaused bounds the pauses in memory. Redis keeps fewer: see wire.MaxPaused.
const MostPaused = 4 * wire.MaxPaused

func newPaused(told chan struct{}) Paused { return Paused{told: told, tell: map[string]struct{}{}} }

// Any reports whether some key may be paused. It costs one load.
func (p *Paused) Any() bool { return p.live.Load() != nil }

// Until returns the time (ns) until which a key is paused; 0: it is not.
func (p *Paused) Until(mark string) int64 {
	if all := p.live.Load(); all != nil {
		return (*all)[mark]
	}
	return 0
}

// Tell pauses a key until a time (ns), and makes a heartbeat due that tells it. The longer of two pauses counts. It
// returns false if memory is full of pauses.
func (p *Paused) Tell(mark string, until, now int64) bool {
	p.mu.Lock()
	full := !p.add(map[string]int64{mark: until}, now)
	if !full {
		p.tell[mark] = struct{}{}
	}
	p.mu.Unlock()
	if full {
		return false
	}
	select {
	case p.told <- struct{}{}:
	default:
	}
	return true
}

// add adds pauses, and drops those that are over. It returns false if there are too many. Call it under p.mu.
func (p *Paused) add(more map[string]int64, now int64) bool {
	next := map[string]int64{}
	if all := p.live.Load(); all != nil {
		maps.Copy(next, *all)
	}
	for mark, until := range more {
		next[mark] = max(next[mark], until)
	}
	maps.DeleteFunc(next, func(_ string, until int64) bool { return until <= now })
	if len(next) > MostPaused {
		return false
	}
	maps.DeleteFunc(p.tell, func(mark string, _ struct{}) bool { return next[mark] == 0 })
	if len(next) == 0 {
		p.live.Store(nil)
		return true
	}
	p.live.Store(&next)
	return true
}

// take returns the version that the process knows, and the pauses to tell, which stay to be told until heard.
func (p *Paused) take(now int64) (version int64, tell []wire.Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(nil, now)
	for mark := range p.tell {
		tell = append(tell, wire.Pause{At: (p.Until(mark) - now) / 1000, Mark: mark})
	}
	slices.SortFunc(tell, func(x, y wire.Pause) int { return cmp.Or(cmp.Compare(y.At, x.At), cmp.Compare(x.Mark, y.Mark)) })
	return p.version, tell[:min(len(tell), wire.MaxPaused)]
}

// heard notes the answer to a heartbeat that told pauses, and reports whether it has news. sent and received are ns. A
// pause ends when it says or up to a round trip later, never before.
func (p *Paused) heard(b *wire.Beat, told []wire.Pause, sent, received int64) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range told {
		delete(p.tell, one.Mark)
	}
	if b.Paused == 0 {
		return false
	}
	p.version = b.Paused
	more := map[string]int64{}
	for _, one := range b.Pauses {
		left := min(one.At-b.Now, wire.MaxPause.Microseconds())
		// The end of a pause that is known differs by the times of messages, which must not make it longer.
		if until := received + left*1000; until > p.Until(one.Mark)+received-sent {
			more[one.Mark] = until
		}
	}
	return len(more) > 0 && p.add(more, received)
}

// lost makes all pauses be told again: Redis may have lost them.
func (p *Paused) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version = 0
	if all := p.live.Load(); all != nil {
		for mark := range *all {
			p.tell[mark] = struct{}{}
		}
	}
}
