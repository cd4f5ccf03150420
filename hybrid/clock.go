package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/account"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// tick is the time between epochs.
const tick = 5 * time.Millisecond

// wordTicks is for how many epochs a word is good at most: 5.1 s, about as long
// as a view is believed. The longer, the fewer slow paths where there are many
// keys.
const wordTicks = account.Ticks

// idleTicks is how many epochs without a slow path stop the ticker: as many as a
// word is good for, so that traffic that pauses for less finds its words again.
const idleTicks = wordTicks

// clock is the hub's time: monotonic ns since it was made, and an epoch that
// the common path compares instead of reading a clock: a word says the last one
// in which it is good. The goroutine that advances the epoch runs only while the
// slow path is in use; when it stops, whatever was stamped is void.
type clock struct {
	start time.Time
	aged  func() // called under no lock when a quarter of the epochs that a word can tell apart are over; nil: nobody
	epoch atomic.Uint64
	rough atomic.Int64 // ns at the last tick
	used  atomic.Bool  // the slow path ran since the last tick
	runs  atomic.Bool
	// ends is when all words end, ns: what they were made of is not known then.
	ends     atomic.Int64
	lateness lateness

	mu     sync.Mutex // guards starting and stopping
	closed bool
	stop   chan struct{}
	wg     sync.WaitGroup
}

func newClock() *clock {
	c := &clock{start: time.Now(), stop: make(chan struct{})}
	c.epoch.Store(1) // 0 is the epoch of an empty word
	c.ends.Store(math.MaxInt64)
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
		c.lateness.reset()
		asked := make(chan struct{}, 1)
		c.wg.Add(2)
		go c.run(asked)
		go c.stand(asked)
	}
}

// void makes the common path of all keys of the hub look again: whatever was
// stamped before is past.
func (c *clock) void() { c.epoch.Add(wordTicks + 1) }

// stamp is touch, and the epoch and the time for an event. The epoch is read
// first: until when a word is good is counted from there, and what voids words,
// or stops the ticker, moves it.
func (c *clock) stamp() (epoch uint64, now int64) {
	epoch = c.epoch.Load()
	c.touch()
	return epoch, c.now()
}

// goodUntil is the last epoch in which a word is good that was stamped with an
// epoch and the time then, and is to end at until: it dies up to a tick after
// that, and later by as much as the ticker is late.
func goodUntil(epoch uint64, now, until int64) uint64 {
	return epoch + uint64(max(0, min((until-now)/int64(tick), wordTicks)))
}

// late is by how much this process runs late what is due: it waits for a core.
// What it has waited for took longer than it would have, by up to this.
func (c *clock) late() time.Duration {
	if !c.runs.Load() {
		return 0
	}
	return c.lateness.late(c.now(), c.rough.Load())
}

func (c *clock) run(asked chan<- struct{}) {
	defer c.wg.Done()
	defer close(asked)
	t := time.NewTicker(tick)
	defer t.Stop()
	at, aged := c.rough.Load()/int64(tick), c.epoch.Load()
	for idle := 0; ; {
		select {
		case <-t.C:
		case <-c.stop:
			return
		}
		now := c.now()
		most(&c.lateness.timer, now-c.rough.Swap(now)-int64(tick))
		select {
		case asked <- struct{}{}:
		default: // it still waits
		}
		// A ticker drops what it is late for; epochs are counted all the same.
		passed := max(1, now/int64(tick)-at)
		at += passed
		epoch := c.epoch.Add(uint64(passed))
		if ends := c.ends.Load(); now >= ends {
			c.ends.CompareAndSwap(ends, math.MaxInt64)
			c.void()
		}
		if (epoch^aged)>>(account.EpochBits-2) != 0 && c.aged != nil {
			aged = epoch
			c.aged()
		}
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
	c.void()
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
	c.void()
}
