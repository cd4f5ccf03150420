package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
	"github.com/hybridlimit/hybridlimit/region"
)

// This file has the runner's end of a worker process, and the protocol between the two: an order and its report, in
// JSON.

// patience bounds waits that are long only in case of an error.
const patience = 30 * time.Second

// spec is the configuration of a worker, and the first thing that it reads.
type spec struct {
	Topology  string            // one of the topologies
	Addrs     []string          // of the servers, or of the Sentinels
	Dial      map[string]string // server address to proxy address
	FleetSize int
	Mode      hybrid.Mode
	Functions bool
	InFlight  bool          // the worker has calls in flight in place of the load
	Region    *regionalSpec `json:",omitempty"` // the worker is in a region, and has the load of one; nil: it is not
	Load      load
	History   string // path
}

// load describes the calls of a worker and their limits.
type load struct {
	Streams    []stream
	Goroutines int            // per stream
	Classes    []hybrid.Class // of the limiter
}

// stream describes calls for keys under one limit. The keys are taken in turn. Streams with the same prefix call for
// the same keys, and have the same keys and limit.
type stream struct {
	Prefix    string // of the keys
	Keys      int
	PerSecond int // calls of each process, for all keys together
	Rate      int64
	Burst     int64
	Class     string // of the calls; "": the limiter itself
	AtOnce    int    // calls that are made one right after the other; 0: 2
	Split     int    // the number of parts of each key; 0: keys are whole
	Day       bool   // the limit is Rate a day, and Burst is Rate
	Estimate  int64  // units that a call takes, of which it gives a drawn part back with package spend; 0: it keeps one
}

// of returns the first stream with a key, or the first of all.
func (l load) of(key string) stream {
	for _, s := range l.Streams {
		if strings.HasPrefix(key, s.Prefix) {
			return s
		}
	}
	return l.Streams[0]
}

// first returns the first stream with the keys of stream i.
func (l load) first(i uint8) uint8 {
	for j, s := range l.Streams {
		if s.Prefix == l.Streams[i].Prefix {
			return uint8(j)
		}
	}
	return i
}

// demand returns the units that a process asks for, for each key of a stream, per second and in all classes.
func (l load) demand(s stream) (units int64) {
	for _, o := range l.Streams {
		if o.Prefix == s.Prefix {
			units += int64(o.PerSecond/o.Keys) * max(1, o.Estimate)
		}
	}
	return units
}

// accounts returns the number of accounts that a process has for each key.
func (l load) accounts() int64 { return int64(1 + len(l.Classes)) }

func (s stream) limit() hybridlimit.Limit {
	if s.Day {
		return hybridlimit.CalendarWindow(s.Rate, hybridlimit.Calendar{Unit: hybridlimit.Day})
	}
	return hybridlimit.TokenBucket(s.Rate, time.Second, s.Burst)
}

func (s stream) key(i int) string { return fmt.Sprint(s.Prefix, i) }

// order is a command to a worker.
type order string

// The orders. Each is answered by a report.
const (
	orderOpen     order = "open"     // make the limiter; the spec stands for this order
	orderStart    order = "start"    // begin the paced load
	orderStop     order = "stop"     // end the load, and wait for the last call
	orderStats    order = "stats"    // report only
	orderBooks    order = "books"    // report the units in hand by key
	orderBaseline order = "baseline" // measure the heap while the load runs
	orderFewer    order = "fewer"    // set the lower limit of calls in flight
	orderUsual    order = "usual"    // set the usual limit of calls in flight
	orderPause    order = "pause"    // pause the first key
	orderShutdown order = "shutdown" // settle, close, and report the rest
)

// report is the state of a worker.
type report struct {
	Err       string          `json:",omitempty"` // the error of the order
	Stats     hybrid.Stats    // of the limiter
	Hub       hybrid.HubStats // of its hub
	Unsettled string          `json:",omitempty"` // the error that Shutdown returned
	Failed    string          `json:",omitempty"` // the first error that a decision returned

	Held   map[string]int64 `json:",omitempty"` // units in hand by key, if there are any; only of the order "books"
	Syncs  int64            // calls of the library to Redis, begun so far
	Flying int64            // the part of them without an answer
	Served int64            // ns: when the last call in flight with a permit of Redis began; 0: there was none

	Goroutines int    // now
	Before     int    // before the limiter was made
	Stacks     string `json:",omitempty"` // if there are more goroutines than before
	Heap       uint64 // bytes in use, after collection
	HeapBefore uint64 // the same, before the limiter was made

	Beside neighbours.Report // of the other limiters of the hub
	Region region.Stats      // of a worker in a region
	Burst  int64             // of that region
}

// client is the runner's end of a worker process.
type client struct {
	history string // path
	child   *benchkit.Child
	abort   context.CancelFunc // kills the process
	busy    sync.Mutex         // held during an order
	killed  int64              // ns: when it was killed; 0: it was not
	last    report             // the last report of the worker
	heap    []uint64           // of a soak: bytes in use at intervals
}

// startClient starts this program as a worker and waits until its limiter is ready.
func startClient(s spec) (*client, error) {
	ctx, abort := context.WithCancel(context.Background())
	child, err := benchkit.StartChild(ctx, []string{workerEnv + "=1"})
	if err != nil {
		abort()
		return nil, err
	}
	c := &client{history: s.History, child: child, abort: abort}
	if err := c.exchange(s); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// exchange sends a message and reads the report.
func (c *client) exchange(message any) error {
	err := c.child.Send(message)
	var r report
	if err == nil {
		err = c.child.Receive(&r)
	}
	if c.last = r; err == nil && r.Err != "" {
		err = errors.New(r.Err)
	}
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// tell gives an order and waits for the report.
func (c *client) tell(o order) (report, error) {
	c.busy.Lock()
	defer c.busy.Unlock()
	if c.killed != 0 {
		return c.last, errors.New("the client was killed")
	}
	if err := c.exchange(o); err != nil {
		return c.last, fmt.Errorf("%s: %w", o, err)
	}
	return c.last, nil
}

func (c *client) pause() error  { return c.child.Signal(syscall.SIGSTOP) }
func (c *client) resume() error { return c.child.Signal(syscall.SIGCONT) }

// kill ends the client with SIGKILL, after it has asked for a last report.
func (c *client) kill() error {
	_, err := c.tell(orderStats)
	c.busy.Lock()
	defer c.busy.Unlock()
	c.killed = newSharedClock().now()
	c.abort()
	_ = c.child.Close() // it was killed
	return err
}

// end closes the client, which ends when its input ends, and kills it if it does not. A client that was killed has no
// error.
func (c *client) end() error {
	if c.killed != 0 {
		return nil
	}
	defer time.AfterFunc(patience, c.abort).Stop()
	_ = c.resume() // an error: it has ended
	return c.child.Close()
}
