package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// The attack on the border of two windows: a burst right before the border and a burst right after it, on a fixed and
// on a sliding window at once. Each burst alone is within the limit.
const (
	attackRate   = 10
	attackWindow = 4 * time.Second
	attackBurst  = 10
	attackSpread = 15 * time.Millisecond // between two calls of a burst
	// attackBefore is the time from the begin of the first burst to the border. On a busy machine a call may be a
	// quarter of a second late and is still before the border.
	attackBefore = 400 * time.Millisecond
	// attackAfter is the time from the border to the begin of the second burst. In the first tenth of a window the
	// sliding window has no room for a unit of it.
	attackAfter = 125 * time.Millisecond
)

// boundary is the demonstration. It has one run at a time.
type boundary struct {
	changed func(boundaryState)
	ctx     context.Context // canceled by close
	cancel  context.CancelFunc
	runs    sync.WaitGroup

	mu    sync.Mutex
	state boundaryState
}

// boundaryState is the data that the page draws.
type boundaryState struct {
	Seq      int64  `json:"seq"`
	Phase    string `json:"phase"` // ready, waiting, running, done
	Rate     int64  `json:"rate"`
	WindowMs int64  `json:"window_ms"`
	Border   int64  `json:"border"` // Unix ms
	Now      int64  `json:"now"`
	Lanes    []lane `json:"lanes"`
}

// lane is one of the two windows under attack.
type lane struct {
	Name     string `json:"name"`
	Dots     []dot  `json:"dots"`
	Admitted int64  `json:"admitted"`
	Worst    int64  `json:"worst"` // most admitted in any trailing window
}

var errRunning = errors.New("playground: the attack is running already")

func newBoundary(changed func(boundaryState)) *boundary {
	b := &boundary{changed: changed}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.state = boundaryState{Phase: "ready", Rate: attackRate, WindowMs: attackWindow.Milliseconds(), Lanes: emptyLanes()}
	return b
}

func emptyLanes() []lane {
	return []lane{{Name: "fixed window", Dots: []dot{}}, {Name: "sliding window", Dots: []dot{}}}
}

func (b *boundary) close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.runs.Wait()
}

// attack begins a run. The run attacks the next border that leaves enough time, and ends a second after that border.
func (b *boundary) attack() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ctx.Err() != nil:
		return errEnded
	case b.state.Phase == "waiting" || b.state.Phase == "running":
		return errRunning
	}
	var limiters []*local.Limiter
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.FixedWindow(attackRate, attackWindow), hybridlimit.SlidingWindow(attackRate, attackWindow),
	} {
		l, err := local.New(limit, local.Config{MaxKeys: 1})
		if err != nil {
			return err
		}
		limiters = append(limiters, l)
	}
	now := time.Now()
	border := time.Unix(0, (now.Add(2*attackBefore).UnixNano()/int64(attackWindow)+1)*int64(attackWindow))
	b.state.Phase, b.state.Border, b.state.Lanes = "waiting", border.UnixMilli(), emptyLanes()
	b.runs.Go(func() { b.run(now, border, limiters) })
	return nil
}

// run makes the calls. Times are measured from now on by the monotonic clock, like those of the limiters.
func (b *boundary) run(now, border time.Time, limiters []*local.Limiter) {
	b.tell("waiting")
	toBorder := border.Sub(now)
	at := func(d time.Duration) bool {
		select {
		case <-time.After(time.Until(now.Add(toBorder + d))):
			return true
		case <-b.ctx.Done():
			return false
		}
	}
	for _, from := range []time.Duration{-attackBefore, attackAfter} {
		for i := range attackBurst {
			if !at(from + time.Duration(i)*attackSpread) {
				return
			}
			b.call(limiters)
			b.tell("running")
		}
	}
	if at(time.Second) {
		b.tell("done")
	}
}

// call sends a request to both limiters.
func (b *boundary) call(limiters []*local.Limiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, l := range limiters {
		at := time.Now()
		res, err := l.Allow(b.ctx, visitor)
		if err != nil { // cannot happen: the key is valid, and the limiter is open
			continue
		}
		lane := &b.state.Lanes[i]
		lane.Dots = append(lane.Dots, dot{At: at.UnixMilli(), Allowed: res.Allowed})
		if res.Allowed {
			lane.Admitted++
		}
		lane.Worst = trailing(lane.Dots, attackWindow.Milliseconds())
	}
}

// trailing returns the most that was admitted in any window, wherever it begins.
func trailing(dots []dot, windowMs int64) (worst int64) {
	for i, first := range dots {
		n := int64(0)
		for _, d := range dots[i:] {
			if d.Allowed && d.At-first.At < windowMs {
				n++
			}
		}
		worst = max(worst, n)
	}
	return worst
}

func (b *boundary) tell(phase string) {
	b.mu.Lock()
	b.state.Phase = phase
	b.state.Seq++
	b.mu.Unlock()
	b.changed(b.look())
}

func (b *boundary) look() boundaryState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Now, s.Lanes = time.Now().UnixMilli(), slices.Clone(s.Lanes)
	for i := range s.Lanes {
		s.Lanes[i].Dots = append([]dot{}, s.Lanes[i].Dots...)
	}
	return s
}
