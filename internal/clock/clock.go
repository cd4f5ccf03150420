package clock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Tick is the time between two epochs.
const Tick = 5 * time.Millisecond

// Span is the largest number of epochs for which a word is valid: 5.1 s, about as long as a view is believed. A
// longer span means fewer slow paths with many keys.
const Span = 1024

// EpochBits is the number of low bits of an epoch that a word keeps.
const EpochBits = 34

// idleTicks is the number of epochs without a slow path after which the ticker stops. It equals the validity of a
// word, so that words survive a shorter pause in traffic.
const idleTicks = Span

// Clock provides monotonic time in ns since New, and an epoch. A word is a value that is valid until an epoch: the
// packed budget of the fast path, which compares epochs instead of reading a clock. The goroutine that advances the
// epoch runs only while the slow path is in use. When it stops, all stamped words become void.
type Clock struct {
	start time.Time
	aged  func() // called without locks after each quarter of the epochs that a word can tell apart; may be nil
	epoch atomic.Uint64
	rough atomic.Int64 // ns at the last tick
	used  atomic.Bool  // the slow path has run since the last tick
	runs  atomic.Bool
	// ends is the time (ns) at which all words end, because the facts behind them are not known after it.
	ends     atomic.Int64
	lateness lateness

	mu     sync.Mutex // guards starting and stopping
	closed bool
	stop   chan struct{}
	wg     sync.WaitGroup
}

// New returns a clock that starts now. It calls aged without locks, after each quarter of the epochs that a word can
// tell apart. aged may be nil.
func New(aged func()) *Clock {
	c := &Clock{start: time.Now(), aged: aged, stop: make(chan struct{})}
	c.epoch.Store(1) // 0 is the epoch of an empty word
	c.ends.Store(math.MaxInt64)
	return c
}

// Now returns the ns since New.
func (c *Clock) Now() int64 { return int64(time.Since(c.start)) }

// Time returns the time at ns since New.
func (c *Clock) Time(ns int64) time.Time { return c.start.Add(time.Duration(ns)) }

// Epoch returns the current epoch.
func (c *Clock) Epoch() uint64 { return c.epoch.Load() }

// Rough returns the ns since New at the last tick.
func (c *Clock) Rough() int64 { return c.rough.Load() }

// EndAll makes Void run at the first tick at or after ns since New.
func (c *Clock) EndAll(ns int64) { c.ends.Store(ns) }

// At returns the ns from New to t.
func (c *Clock) At(t time.Time) int64 { return int64(t.Sub(c.start)) }

// touch notes that the slow path runs. Call it before stamping anything.
func (c *Clock) touch() {
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
		c.rough.Store(c.Now())
		c.lateness.reset()
		asked := make(chan struct{}, 1)
		c.wg.Add(2)
		go c.run(asked)
		go c.stand(asked)
	}
}

// Void ends all words that were stamped before, so that the next call for each key of the hub takes the slow path.
func (c *Clock) Void() { c.epoch.Add(Span + 1) }

// Stamp returns the epoch and the time of an event, and keeps the ticker running. It reads the epoch first, because
// the validity of a word is counted from that epoch. Void moves the epoch, and so does the ticker when it stops.
func (c *Clock) Stamp() (epoch uint64, now int64) {
	epoch = c.epoch.Load()
	c.touch()
	return epoch, c.Now()
}

// GoodUntil returns the last epoch in which a word is valid that was stamped at epoch and now and must end at until.
// The word ends up to a tick after until, and later by as much as the ticker is late.
func GoodUntil(epoch uint64, now, until int64) uint64 {
	return epoch + uint64(max(0, min((until-now)/int64(Tick), Span)))
}

// Late returns the delay with which this process runs due work, because it waits for a core. A measured wait may be
// too long by up to this delay.
func (c *Clock) Late() time.Duration {
	if !c.runs.Load() {
		return 0
	}
	return c.lateness.late(c.Now(), c.rough.Load())
}

func (c *Clock) run(asked chan<- struct{}) {
	defer c.wg.Done()
	defer close(asked)
	t := time.NewTicker(Tick)
	defer t.Stop()
	at, aged := c.rough.Load()/int64(Tick), c.epoch.Load()
	for idle := 0; ; {
		select {
		case <-t.C:
		case <-c.stop:
			return
		}
		now := c.Now()
		most(&c.lateness.timer, now-c.rough.Swap(now)-int64(Tick))
		select {
		case asked <- struct{}{}:
		default: // stand still waits
		}
		// A late ticker drops ticks. The epochs are counted by the time, so they include dropped ticks.
		passed := max(1, now/int64(Tick)-at)
		at += passed
		epoch := c.epoch.Add(uint64(passed))
		if ends := c.ends.Load(); now >= ends {
			c.ends.CompareAndSwap(ends, math.MaxInt64)
			c.Void()
		}
		if (epoch^aged)>>(EpochBits-2) != 0 && c.aged != nil {
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

// park stops the ticker, unless the slow path was used meanwhile.
func (c *Clock) park() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.Store(false)
	if c.used.Load() { // touch sets used before it reads runs
		c.runs.Store(true)
		return false
	}
	c.Void()
	return true
}

// Close ends the clock's goroutines and voids all words.
func (c *Clock) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.stop)
	}
	c.mu.Unlock()
	c.wg.Wait()
	c.Void()
}
