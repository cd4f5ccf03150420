package clock

import (
	"runtime"
	"sync"
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

// watch lets the ticker run while an exchange with Redis takes longer than a tick. Only then does it matter whether
// Redis is slow or this process.
type watch struct {
	clock *Clock
	timer *time.Timer

	mu       sync.Mutex // guards the fields below
	inFlight int
	began    int64 // ns; the time at which inFlight was last 0
	closed   bool
}

func (w *watch) open(c *Clock) {
	w.clock = c
	w.timer = time.AfterFunc(time.Hour, w.fire)
	w.timer.Stop()
}

// Begin says that an exchange with Redis begins. End must follow.
func (c *Clock) Begin() {
	w := &c.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight++; w.inFlight == 1 && !w.closed {
		w.began = c.Now()
		w.timer.Reset(Tick)
	}
}

// End says that an exchange has ended.
func (c *Clock) End() {
	w := &c.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight--; w.inFlight == 0 {
		w.timer.Stop()
	}
}

// fire runs a tick after the first of the exchanges that run has begun.
func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight == 0 || w.closed {
		return
	}
	w.clock.tick()
	most(&w.clock.lateness.timer, w.clock.Now()-w.began-int64(Tick))
}

// busy reports whether an exchange runs.
func (w *watch) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight > 0
}

// late returns the delay of the timer of an exchange that should have fired; 0: there is none.
func (w *watch) late(now int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight == 0 {
		return 0
	}
	return time.Duration(max(0, now-w.began-int64(Tick)))
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.timer.Stop()
}

// Late returns the delay with which this process runs due work, because it waits for a core. A measured wait may be
// too long by up to this delay. It is measured during exchanges with Redis that take longer than a tick, and while
// there are many calls.
func (c *Clock) Late() time.Duration {
	if c.epoch.Load() == 0 {
		return c.watch.late(c.Now())
	}
	return c.lateness.late(c.Now(), c.rough.Load())
}
