package main

import (
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// cellTime is the resolution in which admissions are reported.
const cellTime = 10 * time.Millisecond

// cell counts the calls on the hot key that began in one span of cellTime and
// ended in another, mostly the same. A call is decided at some moment between
// the two, so whoever asks what was admitted in an interval may count those that
// lie inside it with both ends, however late the scheduler or Redis was.
//
// Spans are numbered from the start of the load, on which all processes agree.
type cell struct {
	Began int `json:"b"`
	Ended int `json:"e"`

	// Units admitted from what Redis keeps (lease, credit, Redis itself), and
	// by the process alone (fallback).
	Shared int64 `json:"s,omitempty"`
	Alone  int64 `json:"a,omitempty"`

	// Calls so decided, denials included. A denial from the deny cache is in
	// neither: it is made with or without Redis.
	SharedCalls int64 `json:"sc,omitempty"`
	AloneCalls  int64 `json:"ac,omitempty"`
}

// meter counts what a worker does, and forgets it with each report.
type meter struct {
	start time.Time
	sent  int64 // Redis commands at the last report

	mu      sync.Mutex
	current report
	latency histogram
	cells   map[[2]int]*cell
}

func newMeter(start time.Time) *meter {
	return &meter{start: start, cells: map[[2]int]*cell{}}
}

// note counts one call.
func (m *meter) note(hot bool, began, ended time.Time, res hybridlimit.Result, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current.Decisions++
	m.latency.add(ended.Sub(began))
	if hot {
		m.current.Offered++
	}
	if err != nil {
		m.current.Errors++
		m.current.LastError = err.Error()
		return
	}
	m.current.Sources[res.Source]++
	if hot {
		m.cell(began, ended).note(res)
	}
}

func (m *meter) cell(began, ended time.Time) *cell {
	at := [2]int{cellOf(began.Sub(m.start)), cellOf(ended.Sub(m.start))}
	c := m.cells[at]
	if c == nil {
		c = &cell{Began: at[0], Ended: at[1]}
		m.cells[at] = c
	}
	return c
}

func (c *cell) note(res hybridlimit.Result) {
	switch res.Source {
	case hybridlimit.SourceLease, hybridlimit.SourceCredit, hybridlimit.SourceRedis:
		c.Shared += res.Granted
		c.SharedCalls++
	case hybridlimit.SourceFallback:
		c.Alone += res.Granted
		c.AloneCalls++
	}
}

// take returns what was counted since the last take.
func (m *meter) take() report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.current
	r.Latency = m.latency.sparse()
	for _, c := range m.cells {
		r.Cells = append(r.Cells, *c)
	}
	m.current, m.latency = report{}, histogram{}
	clear(m.cells)
	return r
}
