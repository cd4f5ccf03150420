package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// This file is what runner and workers say to each other: a line of JSON each,
// a command and its answer.

// spec is the first line that a worker reads: what it is.
type spec struct {
	Topology  string            // one of the topologies
	Addrs     []string          // of the servers, or of the Sentinels
	Dial      map[string]string // which proxy stands in front of which address
	FleetSize int
	Functions bool
	Load      load
	History   string // path
}

// load is what is asked for, and under which limits.
type load struct {
	Streams    []stream
	Goroutines int // per stream
}

// stream is calls for keys under one limit, taken in turn.
type stream struct {
	Prefix    string // of the keys
	Keys      int
	PerSecond int // calls of each process, in all
	Rate      int64
	Burst     int64
}

func (s stream) limit() hybridlimit.Limit {
	return hybridlimit.TokenBucket(s.Rate, time.Second, s.Burst)
}

func (s stream) key(i int) string { return fmt.Sprint(s.Prefix, i) }

// order is a command to a worker.
type order string

// The orders. Each is answered with a report.
const (
	orderStart    order = "start"    // paced load, until stopped
	orderStop     order = "stop"     // and wait for the last call
	orderStats    order = "stats"    // say how it stands
	orderBaseline order = "baseline" // measure the heap with the load running
	orderShutdown order = "shutdown" // settle, close, and say what is left
)

// report is how a worker stands.
type report struct {
	Err       string          `json:",omitempty"` // what went wrong with the order
	Stats     hybrid.Stats    // of the limiter
	Hub       hybrid.HubStats // of its hub
	Settled   bool            // Shutdown returned nil
	Unsettled string          `json:",omitempty"` // else what it returned
	Failed    string          `json:",omitempty"` // the first error that a decision returned

	Goroutines int    // now
	Before     int    // before the limiter was made
	Stacks     string `json:",omitempty"` // where there are more than before
	Heap       uint64 // bytes in use, after collection
	HeapBefore uint64 // the same, before the limiter was made

	Logged []string `json:",omitempty"` // lines that the limiter logged
}

func send(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
