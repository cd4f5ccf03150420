package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// message is one line of JSON from a worker process to the parent.
type message struct {
	Kind   string  `json:"kind"`
	Report *report `json:"report,omitempty"` // kindReport
	Event  *event  `json:"event,omitempty"`  // kindEvent
	Error  string  `json:"error,omitempty"`  // kindFailed
}

const (
	kindReady  = "ready"  // the worker waits for the start
	kindReport = "report" // a second has passed
	kindEvent  = "event"  // the library logged a change
	kindDone   = "done"   // load has ended and all is settled
	kindFailed = "failed" // the worker gives up
)

// event is a log line of the library.
type event struct {
	At    time.Duration `json:"at"` // since the start of the load
	Text  string        `json:"text"`
	Cause string        `json:"cause,omitempty"`
}

// report is what a worker did since its last report.
type report struct {
	Second    int                           `json:"second"`  // 1 is the first; 0: what was left at the end
	Offered   int64                         `json:"offered"` // calls on the hot key
	Decisions int64                         `json:"decisions"`
	Messages  int64                         `json:"messages"` // Redis commands
	Sources   [hybridlimit.NumSources]int64 `json:"sources"`
	Latency   sparse                        `json:"latency"`
	Cells     []cell                        `json:"cells"`
	Errors    int64                         `json:"errors"`
	LastError string                        `json:"last_error,omitempty"`

	// As the limiter's Stats say at this moment.
	Fleet   int64  `json:"fleet"`
	Credit  int64  `json:"credit"`
	Breaker string `json:"breaker"`
}
