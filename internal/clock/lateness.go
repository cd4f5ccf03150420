package clock

import (
	"runtime"
	"sync/atomic"
	"time"
)

// lagMemory is in how many ticks a lag is forgotten, but for a third.
const lagMemory = 200

// lateness is by how much a process that waits for a core runs late what is due.
// Two waits are measured while the ticker runs: a timer's, and that at the end of
// the queue of what can run, which is where the runtime puts a goroutine whose
// answer has come from the network. With many goroutines that spin the second is
// many times the first. The zero value is ready.
type lateness struct {
	timer, queue atomic.Int64 // ns, the most of about a second
	since        atomic.Int64 // when the wait in the queue began that goes on, ns on the clock; 0: none does
}

// most keeps the larger of what is remembered, less what is forgotten in a tick,
// and what was measured.
func most(kept *atomic.Int64, measured int64) {
	lag := kept.Load()
	kept.Store(max(measured, lag-lag/lagMemory))
}

func (l *lateness) reset() {
	l.timer.Store(0)
	l.queue.Store(0)
}

// late is what is remembered, or what goes on if that is more already: at now no
// tick has come since the last one.
func (l *lateness) late(now, last int64) time.Duration {
	late := max(0, l.timer.Load(), l.queue.Load(), now-last-int64(Tick))
	if since := l.since.Load(); since != 0 {
		late = max(late, now-since)
	}
	return time.Duration(late)
}

// stand goes to the end of the queue each time it is told to, and measures how
// long it takes to get to its head. It is a goroutine of its own: the ticker must
// not wait.
func (c *Clock) stand(asked <-chan struct{}) {
	defer c.wg.Done()
	for range asked {
		from := c.Now()
		c.lateness.since.Store(from)
		runtime.Gosched()
		most(&c.lateness.queue, c.Now()-from)
		c.lateness.since.Store(0)
	}
}
