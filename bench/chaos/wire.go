package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
)

// This file is the protocol between the runner and its workers: one line of
// JSON for a command, and one for the answer.

// spec is the configuration of a worker, and the first line that it reads.
type spec struct {
	Topology  string            // one of the topologies
	Addrs     []string          // of the servers, or of the Sentinels
	Dial      map[string]string // server address to proxy address
	FleetSize int
	Mode      hybrid.Mode
	Functions bool
	Load      load
	History   string // path
}

// load describes the calls of a worker and their limits.
type load struct {
	Streams    []stream
	Goroutines int            // per stream
	Classes    []hybrid.Class // of the limiter
}

// stream describes calls for keys under one limit. The keys are taken in turn. Streams
// with the same prefix call for the same keys, and have the same keys and limit.
type stream struct {
	Prefix    string // of the keys
	Keys      int
	PerSecond int // calls of each process, for all keys together
	Rate      int64
	Burst     int64
	Class     string // of the calls; "": the limiter itself
	AtOnce    int    // calls that are made one right after the other; 0: 2
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

// demand returns the calls of a process for each key of a stream, per second and in all
// classes.
func (l load) demand(s stream) (calls int64) {
	for _, o := range l.Streams {
		if o.Prefix == s.Prefix {
			calls += int64(o.PerSecond / o.Keys)
		}
	}
	return calls
}

// accounts returns the number of accounts that a process has for each key.
func (l load) accounts() int64 { return int64(1 + len(l.Classes)) }

func (s stream) limit() hybridlimit.Limit {
	return hybridlimit.TokenBucket(s.Rate, time.Second, s.Burst)
}

func (s stream) key(i int) string { return fmt.Sprint(s.Prefix, i) }

// order is a command to a worker.
type order string

// The orders. Each is answered by a report.
const (
	orderStart    order = "start"    // begin the paced load
	orderStop     order = "stop"     // end the load, and wait for the last call
	orderStats    order = "stats"    // report only
	orderBooks    order = "books"    // report the units in hand by key
	orderBaseline order = "baseline" // measure the heap while the load runs
	orderShutdown order = "shutdown" // settle, close, and report the rest
)

// report is the state of a worker.
type report struct {
	Err       string          `json:",omitempty"` // the error of the order
	Stats     hybrid.Stats    // of the limiter
	Hub       hybrid.HubStats // of its hub
	Settled   bool            // Shutdown returned nil
	Unsettled string          `json:",omitempty"` // the error that Shutdown returned
	Failed    string          `json:",omitempty"` // the first error that a decision returned

	Held   map[string]int64 `json:",omitempty"` // units in hand by key, if there are any; only of the order "books"
	Syncs  int64            // calls of the library to Redis, begun so far
	Flying int64            // the part of them without an answer

	Goroutines int    // now
	Before     int    // before the limiter was made
	Stacks     string `json:",omitempty"` // if there are more goroutines than before
	Heap       uint64 // bytes in use, after collection
	HeapBefore uint64 // the same, before the limiter was made

	Logged []string `json:",omitempty"` // lines that the limiter logged

	Beside neighbours.Report // of the other limiters of the hub
}

func send(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
