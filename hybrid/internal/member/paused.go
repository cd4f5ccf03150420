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
	some atomic.Bool   // live is not empty

	mu      sync.RWMutex     // guards the fields below
	live    map[string]int64 // the end (ns) of each pause, by mark; those that are over go with the next heartbeat
	tell    map[string]int64 // those of live that Redis must be told of
	sent    map[string]int64 // those that the heartbeat in flight tells; one may become longer meanwhile
	version int64            // of Redis's pauses, as last heard
}

// MostPaused bounds the pauses in memory. Redis keeps fewer: see wire.MaxPaused.
const MostPaused = 4 * wire.MaxPaused

func newPaused(told chan struct{}) Paused {
	return Paused{told: told, live: map[string]int64{}, tell: map[string]int64{}}
}

// Any reports whether some key may be paused. It costs one load.
func (p *Paused) Any() bool { return p.some.Load() }

// Until returns the time (ns) until which a key is paused; 0: it is not.
func (p *Paused) Until(mark string) int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.live[mark]
}

// Tell pauses a key until a time (ns), and makes a heartbeat due that tells it, unless the key is paused as long already.
// It returns false if memory is full of pauses that end later.
func (p *Paused) Tell(mark string, until int64) bool {
	p.mu.Lock()
	if until <= p.live[mark] {
		p.mu.Unlock()
		return true
	}
	known := p.add(mark, until)
	if known {
		p.tell[mark] = until
	}
	p.mu.Unlock()
	if !known {
		return false
	}
	select {
	case p.told <- struct{}{}:
	default:
	}
	return true
}

// add adds a pause. Of too many, the one that ends first goes. It returns false if that is the new one. Call it under
// p.mu.
func (p *Paused) add(mark string, until int64) bool {
	p.live[mark] = max(p.live[mark], until)
	p.some.Store(true)
	if len(p.live) <= MostPaused {
		return true
	}
	first := mark
	for other, ends := range p.live {
		if ends < p.live[first] {
			first = other
		}
	}
	p.drop(first)
	return first != mark
}

func (p *Paused) drop(mark string) {
	delete(p.live, mark)
	delete(p.tell, mark)
	p.some.Store(len(p.live) > 0)
}

// take drops the pauses that are over. It returns the version that the process knows, and the pauses to tell, which stay
// to be told until heard.
func (p *Paused) take(now int64) (version int64, tell []wire.Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for mark, until := range p.live {
		if until <= now {
			p.drop(mark)
		}
	}
	for mark := range p.tell {
		tell = append(tell, wire.Pause{At: (p.live[mark] - now) / 1000, Mark: mark})
	}
	slices.SortFunc(tell, func(x, y wire.Pause) int { return cmp.Or(cmp.Compare(y.At, x.At), cmp.Compare(x.Mark, y.Mark)) })
	tell = tell[:min(len(tell), wire.MaxPaused)]
	p.sent = map[string]int64{}
	for _, one := range tell {
		p.sent[one.Mark] = p.tell[one.Mark]
	}
	return p.version, tell
}

// heard notes the answer to the heartbeat of the last take, and reports whether it has news. sent and received are ns. A
// pause ends when it says or up to a round trip later. If another process makes it longer by less than a round trip,
// that is not heard.
func (p *Paused) heard(b *wire.Beat, sent, received int64) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for mark, until := range p.sent {
		if p.tell[mark] == until {
			delete(p.tell, mark)
		}
	}
	if b.Paused == 0 {
		return false
	}
	p.version = b.Paused
	for _, one := range b.Pauses {
		left := min(one.At-b.Now, wire.MaxPause.Microseconds())
		// The end of a pause that is known differs by the times of messages, which must not make it longer.
		if until := received + left*1000; until > p.live[one.Mark]+received-sent {
			news = p.add(one.Mark, until) || news
		}
	}
	return news
}

// lost makes all pauses be told again: Redis may have lost them.
func (p *Paused) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version = 0
	maps.Copy(p.tell, p.live)
}
