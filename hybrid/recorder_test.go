package hybrid_test

import (
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// recorder keeps the calls that admitted units. The units were admitted at some time
// between the beginning of the call and its end.
type recorder struct {
	start time.Time

	mu      sync.Mutex
	calls   []call
	sources [adapter.NumSources]int64 // units admitted
	asked   int64                     // calls
}

type call struct {
	begin, end time.Duration // since the recorder's start
	units      int64
}

func newRecorder() *recorder { return &recorder{start: time.Now()} }

// note keeps the result of a call that began at began.
func (r *recorder) note(began time.Time, res hybridlimit.Result) {
	begin, end := began.Sub(r.start), time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if res.Granted > 0 {
		r.calls = append(r.calls, call{begin, end, res.Granted})
		r.sources[res.Source] += res.Granted
	}
}

func (r *recorder) total() (units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		units += c.units
	}
	return units
}

// exceedance returns the most by which the units surely admitted within an interval exceed
// burst + rate·t, over all intervals between whole milliseconds. A call counts if the whole
// call lies in the interval. So a machine that stalls between a decision and its note
// causes no exceedance.
func (r *recorder) exceedance(limit hybridlimit.Limit) (most float64, from, to time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last time.Duration
	for _, c := range r.calls {
		last = max(last, c.end)
	}
	n := int(last/time.Millisecond) + 2
	type ending struct {
		at    int
		units int64
	}
	beginning := make([][]ending, n) // by the ms in which a call began
	for _, c := range r.calls {
		b := int(c.begin / time.Millisecond)
		beginning[b] = append(beginning[b], ending{int(c.end/time.Millisecond) + 1, c.units})
	}
	perMs := float64(limit.Rate) / float64(limit.Period) * float64(time.Millisecond)
	ends := make([]int64, n+1) // units of calls that began at s or later, by the ms in which they ended
	most = -float64(limit.BurstSize())
	for s := n - 1; s >= 0; s-- {
		if len(beginning[s]) == 0 {
			continue
		}
		for _, e := range beginning[s] {
			ends[e.at] += e.units
		}
		var units int64
		for t := s + 1; t <= n; t++ {
			units += ends[t]
			if over := float64(units-limit.BurstSize()) - perMs*float64(t-s); over > most {
				most, from, to = over, time.Duration(s)*time.Millisecond, time.Duration(t)*time.Millisecond
			}
		}
	}
	return most, from, to
}

func TestExceedanceIsFound(t *testing.T) {
	limit := hybridlimit.TokenBucket(100, time.Second, 10)
	r := newRecorder()
	at := func(begin, end int, units int64) {
		r.calls = append(r.calls, call{time.Duration(begin) * time.Millisecond, time.Duration(end) * time.Millisecond, units})
	}
	at(5, 5, 10)
	at(105, 105, 10)
	if over, _, _ := r.exceedance(limit); over > 0 {
		t.Errorf("within the limit, exceedance %v", over)
	}
	at(155, 155, 9) // 19 in 51 ms
	if over, from, to := r.exceedance(limit); over < 3.8 || over > 4 || to != 156*time.Millisecond {
		t.Errorf("exceedance %v in (%v, %v], want 3.9 in (105ms, 156ms]", over, from, to)
	}
	r.calls = nil
	at(5, 5, 10)
	at(6, 106, 10) // it may have been admitted at the end
	if over, _, _ := r.exceedance(limit); over > 0 {
		t.Errorf("perhaps within the limit, exceedance %v", over)
	}
}
