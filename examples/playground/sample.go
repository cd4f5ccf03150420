package main

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// sample is a point of the charts: the events between two ticks.
type sample struct {
	Seq      int64     `json:"seq"`
	At       int64     `json:"at"` // end of the sample, ms by the clock of the charts
	Span     int64     `json:"span"`
	Offered  int64     `json:"offered"`
	Admitted []int64   `json:"admitted"` // by process
	Calls    []int64   `json:"calls"`    // calls, by process
	Naive    int64     `json:"naive"`
	Sources  []int64   `json:"sources"` // decisions, by shownSources
	Messages int64     `json:"messages"`
	Redis    condition `json:"redis"`
	Rate     int64     `json:"rate"`  // the limit
	Burst    int64     `json:"burst"` // of the limit
}

// shownSources are the sources of decisions, in the order of the page.
var shownSources = []hybridlimit.Source{
	hybridlimit.SourceLease, hybridlimit.SourceCredit, hybridlimit.SourceRedis,
	hybridlimit.SourceDenyCache, hybridlimit.SourceFallback, hybridlimit.SourceTimeout,
}

func sourceNames() []string {
	var names []string
	for _, s := range shownSources {
		names = append(names, s.String())
	}
	return names
}

func (c *counts) bySource() []int64 {
	out := make([]int64, len(shownSources))
	for i, s := range shownSources {
		out[i] = c.Allowed[s] + c.Denied[s]
	}
	return out
}

// chartClock is the time of the charts. It stands still while no calls are made, so that a page shows the last minute
// with calls, however long ago that was. A pause is a gap of at most maxGap.
type chartClock struct {
	at  time.Duration // since the start
	gap time.Duration // of the current pause
}

// maxGap is the longest gap in a chart.
const maxGap = time.Second

func (c *chartClock) pass(d time.Duration, calls bool) {
	if calls {
		c.at, c.gap = c.at+d, 0
		return
	}
	d = min(d, maxGap-c.gap)
	c.at, c.gap = c.at+d, c.gap+d
}

func (c *chartClock) ms() int64 { return c.at.Milliseconds() }

const (
	// tickBusy and tickIdle are the intervals between two samples, with and without load.
	tickBusy, tickIdle = 250 * time.Millisecond, time.Second
	// maxSamples is a bit more than a minute.
	maxSamples = 280
)

// latest drops the oldest points that are more than most.
func latest[S any](points []S, most int) []S {
	return slices.Delete(points, 0, max(0, len(points)-most))
}
