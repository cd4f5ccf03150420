package member

import (
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

const (
	// PulseEvery is the time between two heartbeats.
	PulseEvery = census.Every
	// crowd is the number of processes above which an idle hub beats less often, so that the idle processes of a fleet
	// together send at most this many heartbeats a second.
	crowd = 500
	// slowest is the longest time between two heartbeats. A heartbeat expires after three of them.
	slowest = wire.MaxExpiry / 3
	// idleAfter is the least time without an event after which a hub is idle.
	idleAfter = 10 * time.Second
)

// Pace decides when a heartbeat is due. An idle hub in a large fleet beats less often than once a second. A hub is idle
// if no limiter has had an event since every key became full. Such a hub owes no units and gives no credit, and a wiped
// Redis needs no state from it. The count of a hub that beats less often is stale, so the hub gives no credit for 1.5 s
// after it wakes up: see census.Stale.
type Pace struct {
	used  atomic.Bool   // there was an event since the last look
	slow  atomic.Bool   // heartbeats are less frequent than one a second
	full  atomic.Int64  // ns; the longest time to full of the limits in use
	woken chan struct{} // has room for one: a slow hub has had an event

	// The rest belongs to the heartbeat's goroutine.
	busy  time.Time     // last look that saw an event
	last  time.Time     // last heartbeat
	every time.Duration // promised with it: the next one comes by then
}

func newPace() Pace { return Pace{woken: make(chan struct{}, 1), every: PulseEvery, busy: time.Now()} }

// Event notes an event under a limit with this time to full. The first event of a slow hub causes a heartbeat.
func (p *Pace) Event(full int64) {
	for was := p.full.Load(); full > was && !p.full.CompareAndSwap(was, full); {
		was = p.full.Load()
	}
	if p.used.Load() {
		return
	}
	p.used.Store(true)
	if p.slow.Load() {
		select {
		case p.woken <- struct{}{}:
		default:
		}
	}
}

// due reports whether a heartbeat is due, in a fleet of n processes. It is called once a second, and before each
// heartbeat.
func (p *Pace) due(now time.Time, n int64) bool {
	if p.used.Swap(false) {
		p.busy = now
	}
	slow := n > crowd && now.Sub(p.busy) > max(idleAfter, time.Duration(p.full.Load()))
	p.slow.Store(slow)
	every := PulseEvery
	if slow {
		every = min(time.Duration((n+crowd-1)/crowd)*PulseEvery, slowest)
	}
	// The promise of the last heartbeat holds. Half a second is for a timer that is early.
	if now.Sub(p.last) < min(every, p.every)-PulseEvery/2 {
		return false
	}
	p.every = every
	return true
}

// expiry returns the time for which the heartbeat that is due is counted, and notes that it is sent.
func (p *Pace) expiry() time.Duration {
	p.last = time.Now()
	return 3 * p.every
}
