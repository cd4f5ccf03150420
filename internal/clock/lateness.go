package clock

import (
	"runtime"
	"sync/atomic"
	"time"
)

// lagMemory is the number of ticks after which about a third of a lag is still remembered.
const lagMemory = 200

// lateness measures the delay with which a process runs due work while it waits for a core. It measures two waits
// while the ticker runs. The first is the delay of a timer. The second is the wait at the end of the queue of
// runnable goroutines, where the runtime puts a goroutine whose answer has come from the network. With many
// goroutines that spin, the second wait is many times the first. The zero value is ready.
type lateness struct {
	timer, queue atomic.Int64 // ns: the largest of about the last second
	since        atomic.Int64 // ns on the clock: start of the present wait in the queue; 0: none
}

// most keeps the larger of two values: the remembered one, reduced by one tick of forgetting, and the measured one.
func most(kept *atomic.Int64, measured int64) {
	lag := kept.Load()
	kept.Store(max(measured, lag-lag/lagMemory))
}

func (l *lateness) reset() {
	l.timer.Store(0)
	l.queue.Store(0)
}

// late returns the remembered delay, or the present one if that is already larger. last is the time of the last tick.
func (l *lateness) late(now, last int64) time.Duration {
	late := max(0, l.timer.Load(), l.queue.Load(), now-last-int64(Tick))
	if since := l.since.Load(); since != 0 {
		late = max(late, now-since)
	}
	return time.Duration(late)
}

// stand goes to the end of the queue each time it is asked to, and measures the time until it is at the head. It is a
// goroutine of its own, because the ticker must not wait.
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
