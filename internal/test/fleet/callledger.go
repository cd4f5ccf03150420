package fleet

import (
	"slices"
	"sync"
	"time"
)

// callLedger counts the calls and the messages of a run. Times are ns since the start of the processes. It is safe for
// concurrent use.
type callLedger struct {
	from, until int64 // of the steady part

	mu      sync.Mutex // guards the fields below
	report  CallReport
	waits   []int64
	running []int64 // by key
}

func (l *callLedger) steady(at int64) bool { return at >= l.from && at < l.until }

// came counts a call that comes.
func (l *callLedger) came(c *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Open++
	if l.steady(c.at) {
		l.report.Calls++
	}
}

// decided counts a call that begins to run, or is denied.
func (l *callLedger) decided(c *flight, now int64, admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.done {
		panic("fleet: a call is decided twice")
	}
	c.done = true
	l.report.Open--
	if !admitted {
		return
	}
	l.running[c.key]++
	l.report.Most = max(l.report.Most, l.running[c.key])
	if !l.steady(c.at) {
		return
	}
	l.report.Admitted++
	if now > c.at {
		l.waits = append(l.waits, now-c.at)
	}
}

// ended counts a call that has run.
func (l *callLedger) ended(c *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[c.key]--
}

// sent counts a message with a number of ops, and the renewals of a call that has ended.
func (l *callLedger) sent(at, ops, renewals int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.steady(at) {
		l.report.Messages++
		l.report.Ops += ops
		l.report.Renewals += renewals
	}
}

// total returns the report at the end.
func (l *callLedger) total() CallReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.report
	slices.Sort(l.waits)
	r.Waited = int64(len(l.waits))
	if n := len(l.waits); n > 0 {
		r.Half, r.Slow = time.Duration(l.waits[n/2]), time.Duration(l.waits[n*99/100])
	}
	return r
}
