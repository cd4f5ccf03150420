package callfleet

import (
	"slices"
	"sync"
	"time"
)

// ledger counts the calls and the messages of a run. Times are ns since the start of the processes. It is safe for
// concurrent use.
type ledger struct {
	from, until int64 // of the steady part

	mu      sync.Mutex // guards the fields below
	report  Report
	waits   []int64
	running []int64 // by key
}

func newLedger(s Scenario) *ledger {
	return &ledger{from: lead + int64(s.Steady), until: lead + int64(s.Span), running: make([]int64, s.Keys)}
}

func (l *ledger) steady(at int64) bool { return at >= l.from && at < l.until }

// came counts a call that comes.
func (l *ledger) came(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Open++
	if l.steady(c.at) {
		l.report.Calls++
	}
}

// admitted counts a call that begins to run.
func (l *ledger) admitted(c *call, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided(c)
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

// denied counts a call that does not run.
func (l *ledger) denied(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided(c)
}

func (l *ledger) decided(c *call) {
	if c.done {
		panic("callfleet: a call is decided twice")
	}
	c.done = true
	l.report.Open--
}

// ended counts a call that has run.
func (l *ledger) ended(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[c.key]--
}

// sent counts a message.
func (l *ledger) sent(at int64, ops int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.steady(at) {
		l.report.Messages++
		l.report.Ops += int64(ops)
	}
}

// renewed counts renewals of a call that has ended.
func (l *ledger) renewed(at, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.steady(at) {
		l.report.Renewals += n
	}
}

// total returns the report at the end.
func (l *ledger) total() Report {
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
