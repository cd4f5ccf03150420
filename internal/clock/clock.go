package clock

import (
	"math"
	"math/rand/v2"
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

// A ticker costs about as much of a core as some ten thousand readings of the clock a second. So it starts when
// busyCalls calls come in less than a tick, and runs for tickFor: then such calls have to start it again.
const (
	busyCalls = 32
	tickFor   = time.Second
)

// Clock provides monotonic time in ns since New, and an epoch: the number of ticks since New, plus those that Void
// added. A word is a value that is valid until an epoch: the packed budget of the fast path.
//
// With few calls, each call reads the time. With many calls, or while an exchange with Redis takes longer than a tick,
// a ticker tells calls the epoch, which costs them less.
type Clock struct {
	start time.Time
	aged  func() // see Age; may be nil

	// epoch is the one of the last tick; 0: there is no ticker, so that calls read the time. It is written with mu
	// held.
	epoch atomic.Uint64
	added atomic.Uint64 // epochs that Void added; written with mu held
	rough atomic.Int64  // ns at the last tick
	// ends is the time (ns) at which all words end, because the facts behind them are not known after it.
	ends atomic.Int64

	calls  atomic.Uint64 // that read the time
	called atomic.Int64  // ns; the time at which calls was last divisible by busyCalls

	quarter  uint64 // of the range of epochs: see Age
	lateness lateness
	watch    watch

	mu     sync.Mutex // guards the epoch, and starting and stopping of the ticker
	closed bool
	rested int64 // ns; the end of the last ticker
	stop   chan struct{}
	wg     sync.WaitGroup
}

// New returns a clock that starts now. Age calls aged, which may be nil.
func New(aged func()) *Clock {
	c := &Clock{start: time.Now(), aged: aged, stop: make(chan struct{})}
	c.added.Store(1) // 0 is the epoch of an empty word
	c.called.Store(-int64(Tick))
	c.ends.Store(math.MaxInt64)
	c.watch.open(c)
	return c
}

// Now returns the ns since New.
func (c *Clock) Now() int64 { return int64(time.Since(c.start)) }

// Time returns the time at ns since New.
func (c *Clock) Time(ns int64) time.Time { return c.start.Add(time.Duration(ns)) }

// Epoch returns the current epoch.
func (c *Clock) Epoch() uint64 {
	if epoch := c.epoch.Load(); epoch > 0 {
		return epoch
	}
	return c.read()
}

// read is Epoch for a call that reads the time.
func (c *Clock) read() uint64 {
	now := c.Now()
	c.expire(now)
	if c.calls.Add(1)%busyCalls == 0 && now-c.called.Swap(now) < int64(Tick) {
		c.tick()
	}
	return c.at(now)
}

// at returns the epoch of a time.
func (c *Clock) at(now int64) uint64 { return uint64(now/int64(Tick)) + c.added.Load() }

// Rough returns the ns since New at the last tick, or those of now if there is no ticker.
func (c *Clock) Rough() int64 {
	if c.epoch.Load() > 0 {
		return c.rough.Load()
	}
	return c.exact()
}

// exact is Now, so that Rough is inlined.
//
//go:noinline
func (c *Clock) exact() int64 { return c.Now() }

// EndAll makes Void run at ns since New, or at the first tick after it.
func (c *Clock) EndAll(ns int64) { c.ends.Store(ns) }

// expire voids all words if EndAll says so. It clears the time last: another call that comes meanwhile does the same.
func (c *Clock) expire(now int64) {
	if ends := c.ends.Load(); now >= ends {
		c.Void()
		c.ends.CompareAndSwap(ends, math.MaxInt64)
	}
}

// At returns the ns from New to t.
func (c *Clock) At(t time.Time) int64 { return int64(t.Sub(c.start)) }

// Void ends all words that were stamped before, so that the next call for each key of the hub takes the slow path.
func (c *Clock) Void() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added.Add(Span + 1)
	if epoch := c.epoch.Load(); epoch > 0 {
		c.epoch.Store(epoch + Span + 1)
	}
}

// Stamp returns the epoch and the time of an event. It reads the epoch first, because the validity of a word is counted
// from that epoch.
func (c *Clock) Stamp() (epoch uint64, now int64) {
	epoch = c.Epoch()
	return epoch, c.Now()
}

// GoodUntil returns the last epoch in which a word is valid that was stamped at epoch and now and must end at until.
// The word ends up to a tick after until, and later by as much as the ticker is late.
func GoodUntil(epoch uint64, now, until int64) uint64 {
	return epoch + uint64(max(0, min((until-now)/int64(Tick), Span)))
}

// Age calls aged once for each quarter of the epochs that a word can tell apart: eight months of ticks. A word that is
// not used for half of them would become valid again, so aged takes back all words. Call Age without locks, more often
// than that, from one goroutine.
func (c *Clock) Age() {
	quarter := c.Epoch() >> (EpochBits - 2)
	if quarter != c.quarter && c.aged != nil {
		c.quarter = quarter
		c.aged()
	}
}

// tick starts the ticker.
func (c *Clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.epoch.Load() > 0 {
		return
	}
	now := c.Now()
	if now-c.rested > int64(tickFor) {
		c.lateness.reset()
	}
	c.rough.Store(now)
	c.epoch.Store(c.at(now))
	asked := make(chan struct{}, 1)
	c.wg.Add(2)
	go c.run(asked)
	go c.stand(asked)
}

// run is the ticker. Its ticks are at multiples of Tick since New, so that the epoch changes when the time says so.
func (c *Clock) run(asked chan<- struct{}) {
	defer c.wg.Done()
	defer close(asked)
	began := c.Now()
	due := began - began%int64(Tick) + int64(Tick)
	timer := time.NewTimer(time.Duration(due - began))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.stop:
			return
		}
		now := c.Now()
		c.rough.Store(now)
		most(&c.lateness.timer, now-due)
		select {
		case asked <- struct{}{}:
		default: // stand still waits
		}
		c.mu.Lock()
		c.epoch.Store(c.at(now)) // ticks that a late ticker dropped count too
		c.mu.Unlock()
		c.expire(now)
		if now-began >= int64(tickFor) && !c.watch.busy() {
			c.rest()
			return
		}
		due = now - now%int64(Tick) + int64(Tick)
		timer.Reset(time.Duration(due - now))
	}
}

// rest ends the ticker. From now on calls read the time.
func (c *Clock) rest() {
	c.mu.Lock()
	c.epoch.Store(0)
	c.rested = c.Now()
	c.mu.Unlock()
}

// Close ends the clock's goroutines and voids all words.
func (c *Clock) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.stop)
	}
	c.mu.Unlock()
	c.watch.close()
	c.wg.Wait()
	c.rest()
	c.Void()
}

// Jitter returns a random time from ½ d to 1½ d.
func Jitter(d int64) int64 { return d/2 + rand.Int64N(d) }
