package main

import (
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// counts has the results of calls by source. The page shows these figures, which are counted independently of the
// library's Stats.
type counts struct {
	Offered int64                     `json:"offered"`
	Allowed [adapter.NumSources]int64 `json:"allowed"`
	Denied  [adapter.NumSources]int64 `json:"denied"`
	Errors  int64                     `json:"errors"`
	Naive   int64                     `json:"naive"` // admitted by the naive limiter
}

// add adds d times sign, which is 1 or -1.
func (c *counts) add(d counts, sign int64) {
	c.Offered += sign * d.Offered
	c.Errors += sign * d.Errors
	c.Naive += sign * d.Naive
	for i := range c.Allowed {
		c.Allowed[i] += sign * d.Allowed[i]
		c.Denied[i] += sign * d.Denied[i]
	}
}

// admitted returns the admitted units. A call costs one unit.
func (c *counts) admitted() (n int64) {
	for _, k := range c.Allowed {
		n += k
	}
	return n
}

func (c *counts) decisions() int64 {
	n := c.admitted()
	for _, k := range c.Denied {
		n += k
	}
	return n
}

// note counts the result of a call, and reports whether the call is admitted.
func (c *counts) note(res hybridlimit.Result, err error) bool {
	c.Offered++
	switch {
	case err != nil && res.Source == hybridlimit.SourceUnknown:
		c.Errors++
	case !res.Allowed:
		c.Denied[res.Source]++
	default:
		c.Allowed[res.Source]++
		return true
	}
	return false
}

// placed has admissions with their times: on the shared limit, by processes alone, and by the naive limiter.
type placed struct{ shared, alone, naive []admission }

func (p *placed) add(q placed) {
	p.shared, p.alone, p.naive = append(p.shared, q.shared...), append(p.alone, q.alone...), append(p.naive, q.naive...)
}

// tally counts the calls of a process.
type tally struct {
	epoch time.Time

	mu     sync.Mutex
	counts counts
	placed placed
}

func (t *tally) cell(at time.Time) int { return int(at.Sub(t.epoch) / cellTime) }

func (t *tally) note(began, ended time.Time, res hybridlimit.Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.counts.note(res, err) {
		return
	}
	a := admission{t.cell(began), t.cell(ended), res.Granted}
	if res.Source == hybridlimit.SourceFallback {
		t.placed.alone = put(t.placed.alone, a)
	} else {
		t.placed.shared = put(t.placed.shared, a)
	}
}

// naive records an answer of the naive limiter, which takes no time.
func (t *tally) naive(allowed bool) {
	if !allowed {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Naive++
	c := t.cell(time.Now())
	t.placed.naive = put(t.placed.naive, admission{c, c, 1})
}

// put adds an admission. If it has the cells of the last one, as most have, it is merged.
func put(as []admission, a admission) []admission {
	if n := len(as); n > 0 && as[n-1].began == a.began && as[n-1].ended == a.ended {
		as[n-1].units += a.units
		return as
	}
	return append(as, a)
}

// take returns the counts since the start, and the admissions since the last take.
func (t *tally) take() (counts, placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.placed
	t.placed = placed{}
	return t.counts, p
}

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

func sourceNames() (names []string) {
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
