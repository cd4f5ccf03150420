package hybrid

import (
	"sync"
	"sync/atomic"
	"time"
)

// tick is the time between epochs. What the common path may spend is good for
// one epoch, so this is how stale it can be.
const tick = 5 * time.Millisecond

// idleTicks is how many epochs without a slow path stop the ticker.
const idleTicks = 20

// clock is the hub's time: monotonic ns since it was made, and an epoch that
// the common path compares instead of reading a clock. The goroutine that
// advances the epoch runs only while the slow path is in use; before it stops
// it advances once more, so that whatever was stamped is void.
type clock struct {
	start time.Time
	epoch atomic.Uint64
	rough atomic.Int64 // ns at the last tick
	used  atomic.Bool  // the slow path ran since the last tick
	runs  atomic.Bool

	mu     sync.Mutex // guards starting and stopping
	closed bool
	stop   chan struct{}
	wg     sync.WaitGroup
}

func newClock() *clock {
	c := &clock{start: time.Now(), stop: make(chan struct{})}
	c.epoch.Store(1) // 0 is the epoch of an empty word
	return c
}

func (c *clock) now() int64 { return c.at(time.Now()) }

func (c *clock) at(t time.Time) int64 { return int64(t.Sub(c.start)) }

// touch notes that the slow path runs, before it stamps anything.
func (c *clock) touch() {
	if !c.used.Load() {
		c.used.Store(true)
	}
	if c.runs.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.runs.Load() && !c.closed {
		c.runs.Store(true)
		c.rough.Store(c.now())
		c.wg.Add(1)
		go c.run()
	}
}

// void makes the common path of all keys of the hub look again.
func (c *clock) void() { c.epoch.Add(1) }

// stamp is touch, and the epoch and the time for an event. The epoch is read
// first: a word is good for one tick after its epoch began, so it must not
// be computed for a time before that.
func (c *clock) stamp() (epoch uint64, now int64) {
	c.touch()
	return c.epoch.Load(), c.now()
}

func (c *clock) run() {
	defer c.wg.Done()
	t := time.NewTicker(tick)
	defer t.Stop()
	for idle := 0; ; {
		select {
		case <-t.C:
		case <-c.stop:
			return
		}
		c.rough.Store(c.now())
		c.epoch.Add(1)
		if c.used.Swap(false) {
			idle = 0
			continue
		}
		if idle++; idle >= idleTicks && c.park() {
			return
		}
	}
}

// park stops the ticker unless the slow path was used meanwhile.
func (c *clock) park() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.Store(false)
	if c.used.Load() { // set before runs was looked at: see touch
		c.runs.Store(true)
		return false
	}
	c.epoch.Add(1)
	return true
}

func (c *clock) close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.stop)
	}
	c.mu.Unlock()
	c.wg.Wait()
	c.epoch.Add(1)
}
