package local

import (
	"slices"
	"sort"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// journal is the state of a sliding log: the admitted units, in the order in which they leave. Units leave a period
// after their admission, so the log always covers a whole period. A changed period holds for later calls.
//
// An entry is a call of any cost and needs 24 bytes. Calls of the same nanosecond share an entry. A call with a request
// id also has a note, of 40 bytes and the id, and shares an entry only with calls of the same id. Each entry holds the
// sum of all units up to it, so a search for the n-th unit needs ⌈log₂ entries⌉ steps. Sums may wrap: only their
// differences count.
type journal struct {
	calls []call
	base  int64 // sum of the units before calls[0]

	period  time.Duration // calls without a note leave after it
	request string        // the request id of the call in progress
}

type call struct {
	leaves time.Duration
	sum    int64
	note   *note // nil: no request id, and admitted a period before it leaves
}

// note is the part of a call that does not follow from its times.
type note struct {
	at      time.Duration
	request string
}

func (c call) request() string {
	if c.note == nil {
		return ""
	}
	return c.note.request
}

func (j *journal) used() int64 {
	if len(j.calls) == 0 {
		return 0
	}
	return j.calls[len(j.calls)-1].sum - j.base
}

// advance drops the entries that have left. Of a long log, append moves the others when the memory at the end is used
// up, so a call costs O(1) on average.
func (j *journal) advance(_ *plan, now time.Duration) {
	left := 0
	for ; left < len(j.calls) && j.calls[left].leaves <= now; left++ {
		j.base = j.calls[left].sum
	}
	switch live := len(j.calls) - left; {
	case live > keepCalls:
		j.calls = j.calls[left:]
	case live == 0 && cap(j.calls) > keepCalls:
		j.calls = nil
	default:
		j.calls = slices.Delete(j.calls, 0, left)
	}
}

// keepCalls is the largest number of entries that are moved at once, and are not worth freeing: about 1.5 kB.
const keepCalls = 64

// add adds n units that leave a period from now. They come last, unless the period has become shorter.
func (j *journal) add(p *plan, now time.Duration, n int64) {
	leaves, i := leaving(p, now), len(j.calls)
	if i == 0 {
		j.period = p.period
	}
	var about *note
	if j.request != "" || j.period != p.period {
		about = &note{now, j.request}
	}
	for i > 0 && j.calls[i-1].leaves > leaves {
		i--
		j.calls[i].sum += n
	}
	before := j.before(i)
	if i > 0 {
		if last := j.calls[i-1]; last.leaves == leaves && last.same(about) {
			j.calls[i-1].sum += n
			return
		}
	}
	j.calls = slices.Insert(j.calls, i, call{leaves, before + n, about})
}

// same reports whether the note of the call equals as.
func (c call) same(as *note) bool {
	return c.note == as || c.note != nil && as != nil && *c.note == *as
}

// history returns the admissions that still count, the oldest first. start is the time of shard time 0.
func (j *journal) history(now time.Duration, start time.Time) []hybridlimit.Admission {
	j.advance(nil, now)
	before := j.base
	log := make([]hybridlimit.Admission, 0, len(j.calls))
	for _, c := range j.calls {
		at := c.leaves - j.period
		if c.note != nil {
			at = c.note.at
		}
		log = append(log, hybridlimit.Admission{At: start.Add(at).Round(0), Units: c.sum - before, RequestID: c.request()})
		before = c.sum
	}
	return log
}

// before returns the sum of the units before an entry.
func (j *journal) before(i int) int64 {
	if i == 0 {
		return j.base
	}
	return j.calls[i-1].sum
}

func (j *journal) take(p *plan, now time.Duration, n int64, _ time.Duration) booking {
	if n > p.burst-j.used() {
		return booking{}
	}
	j.add(p, now, n)
	return booking{ok: true}
}

func leaving(p *plan, now time.Duration) time.Duration { return now + min(p.period, 1<<63-1-now) }

func (j *journal) look(p *plan, now time.Duration, n int64) look {
	used := j.used()
	l := look{room: max(0, p.burst-used)}
	if n > l.room && used > 0 {
		must := used - (p.burst - n) // units that have to leave first
		i := sort.Search(len(j.calls), func(i int) bool { return j.calls[i].sum-j.base >= must })
		l.retry = j.calls[i].leaves - now
	}
	if used > 0 {
		l.reset = j.calls[len(j.calls)-1].leaves - now
	}
	return l
}

func (j *journal) charge(p *plan, now time.Duration, n int64) {
	if n = min(n, 2*p.burst-j.used()); n > 0 {
		j.add(p, now, n)
	}
}

// refund gives back the oldest units, which would leave first. So no period counts less than the units admitted in it
// and kept.
func (j *journal) refund(_ *plan, _ time.Duration, n int64) float64 {
	back := min(n, j.used())
	j.base += back // as if they had left
	for len(j.calls) > 0 && j.calls[0].sum-j.base <= 0 {
		j.calls = j.calls[1:]
	}
	return float64(back)
}

func (j *journal) mark(p *plan, now time.Duration) mark {
	return mark{at: now, until: leaving(p, now), by: j.request}
}

// undo takes the units out of the entry that has them.
func (j *journal) undo(_ *plan, _ time.Duration, m mark, _ float64, n int64) float64 {
	i := sort.Search(len(j.calls), func(i int) bool { return j.calls[i].leaves >= m.until })
	for i < len(j.calls) && j.calls[i].leaves == m.until && j.calls[i].request() != m.by {
		i++
	}
	if i == len(j.calls) || j.calls[i].leaves != m.until {
		return 0
	}
	n = min(n, j.calls[i].sum-j.before(i))
	for k := i; k < len(j.calls); k++ {
		j.calls[k].sum -= n
	}
	if j.calls[i].sum == j.before(i) {
		j.calls = slices.Delete(j.calls, i, i+1)
	}
	return float64(n)
}

// change leaves the times at which calls leave.
func (j *journal) change(_, _ *plan, _ time.Duration) {}
