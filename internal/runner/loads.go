package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// loadEvery is the shortest time between the beginnings of two loads of one target, if Redis has not answered the
	// first with success.
	loadEvery = time.Second
	// loadsKept is the number of targets above which old ones are forgotten. It bounds memory when the nodes of a
	// cluster change their addresses.
	loadsKept = 64
	// loadForgotten is the age of a target that may be forgotten. It is longer than a command takes.
	loadForgotten = time.Minute
)

// loads decides which call sends the source of a script or of the library to Redis. A source has about 35 kB, and after
// a failover each of thousands of calls finds it missing. For each target:
//
//   - One load is in progress at a time. The other calls wait for its end, or for their own.
//   - After a load that Redis answered with success, the next one follows only a call that was sent after that answer
//     and still found the code missing. So Redis has lost the code again.
//   - After any other load, the next one begins loadEvery after its beginning. Until then, calls that find the code
//     missing get the error of that load.
//   - Loads on all nodes, for a node that the client does not report, begin loadEvery apart. Calls go on without one.
//
// All runners of a client share its loads. Safe for concurrent use.
type loads struct {
	ended atomic.Uint64 // loads of all targets that have ended

	mu   sync.Mutex // guards the fields below; not held while waiting
	of   map[target]*turns
	vain time.Time // of the last inVain
}

// target is code on a node.
type target struct {
	node string // address, "" or everyNode
	code string // digest of a script, or name of the library
}

// turns is the state of one target.
type turns struct {
	now    *load     // in progress, or nil
	ended  uint64    // loads.ended after the last load; 0: none
	failed error     // of the last load; nil: success
	begun  time.Time // beginning of the last load
}

// load is one load in progress. Its caller must end it.
type load struct {
	all    *loads
	target target
	begun  time.Time
	over   chan struct{} // closed at the end
}

func newLoads() *loads { return &loads{of: map[target]*turns{}} }

// time returns the time of these loads. A call reads it before it is sent.
func (l *loads) time() uint64 { return l.ended.Load() }

// turn is the part of a call that found code missing.
type turn struct {
	mine   *load // the call loads the code, or nil
	wait   *load // the call waits for this load, or nil
	loaded bool  // the code was loaded after the call was sent
}

// begin is for a call that was sent at asked or later and found the code missing. If the call has to load the code, the
// turn has mine. Otherwise begin waits for the end of the load in progress, and the call has to be sent again. The
// error is ctx's, or has that of a load less than loadEvery ago as its cause.
func (l *loads) begin(ctx context.Context, to target, asked uint64) (turn, error) {
	for {
		turn, err := l.next(to, asked)
		if turn.wait == nil {
			return turn, err
		}
		late := time.NewTimer(time.Until(turn.wait.begun.Add(loadEvery)))
		select {
		case <-turn.wait.over:
		case <-late.C: // this call or another may begin a load beside it
		case <-ctx.Done():
			err = ctx.Err()
		}
		late.Stop()
		if err != nil {
			return turn, err
		}
	}
}

// next returns the turn of a call now.
func (l *loads) next(to target, asked uint64) (turn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, now := l.turns(to), time.Now()
	switch recent := now.Sub(t.begun) < loadEvery; {
	case t.ended > asked:
		return turn{loaded: t.failed == nil}, nil
	case t.now != nil && recent:
		return turn{wait: t.now}, nil
	case t.failed != nil && recent:
		const text = "hybridlimit: Redis does not have the library's code, and the last attempt to load it failed: %w"
		return turn{}, fmt.Errorf(text, t.failed)
	case to.node == everyNode && recent:
		return turn{loaded: true}, nil
	}
	t.now = &load{all: l, target: to, begun: now, over: make(chan struct{})}
	t.begun = now
	return turn{mine: t.now}, nil
}

// turns returns the state of a target. Call it with mu held.
func (l *loads) turns(to target) *turns {
	t := l.of[to]
	if t != nil {
		return t
	}
	if len(l.of) >= loadsKept {
		for other, old := range l.of {
			if time.Since(old.begun) > loadForgotten {
				delete(l.of, other)
			}
		}
	}
	t = &turns{}
	l.of[to] = t
	return t
}

// inVain notes that a function was not found after loads on its node and on all nodes.
func (l *loads) inVain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vain = time.Now()
}

// recentlyInVain reports whether inVain was called less than loadEvery ago.
func (l *loads) recentlyInVain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.vain.IsZero() && time.Since(l.vain) < loadEvery
}

// end ends a load. If its context ended before go-redis had a connection, nothing was sent, and the next caller loads.
func (o *load) end(err error) {
	l := o.all
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(o.over)
	t := l.turns(o.target)
	last := t.now == o
	if last {
		t.now = nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	if redis.HasErrorPrefix(err, "HLBATCH") { // the script ran, and refused the batch
		err = nil
	}
	t.ended = l.ended.Add(1)
	if last || err == nil {
		t.failed = err
	}
}
