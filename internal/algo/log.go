package algo

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// LogWindow is the limit of a sliding log: exactly Rate units in any trailing Period. It keeps every admission, so it
// costs memory. It has no leases and no views: each call asks Redis.
type LogWindow struct {
	Rate   int64 // units
	Period int64 // µs
}

// Entry is one admission in a log.
type Entry struct {
	At    int64  // µs of Redis time, greater than in the entry before
	Units int64  // admitted units
	ID    string // Op.ID
}

// LogOf converts a valid limit.
func LogOf(l hybridlimit.Limit) LogWindow {
	return LogWindow{Rate: l.Rate, Period: int64(l.Period / time.Microsecond)}
}

// Load advances a log to now: it drops entries that are a Period old. If the clock stepped back by more than
// ClockSlack, the log moves with it. If by less, entries of the future stay, and live longer by that time.
func (l LogWindow) Load(log []Entry, now int64) []Entry {
	log = slices.Clone(log)
	if n := len(log); n > 0 && log[n-1].At-now > ClockSlack {
		shift := log[n-1].At - now
		for i := range log {
			log[i].At -= shift
		}
	}
	return slices.DeleteFunc(log, func(e Entry) bool { return now-e.At >= l.Period })
}

func used(log []Entry) int64 {
	sum := int64(0)
	for _, e := range log {
		sum += e.Units
	}
	return sum
}

// Apply runs op on a log at now and reports whether it must be written.
func (l LogWindow) Apply(log []Entry, op Op, now int64) ([]Entry, Answer, bool) {
	log = l.Load(log, now)
	dirty := false
	if op.Reset {
		dirty, log = len(log) > 0, nil
	}
	add := func(units int64) {
		at := now
		if n := len(log); n > 0 {
			at = max(now, log[n-1].At+1)
		}
		log, dirty = append(log, Entry{at, units, op.ID}), true
	}
	if owed := min(op.Owed, min(2*l.Rate, exact)-used(log)); owed > 0 {
		add(owed)
	}
	if op.Refund > 0 && len(log) > 0 {
		if op.RefundAt > 0 {
			log, dirty = refundEntry(log, op.Refund, op.RefundAt, dirty)
		} else {
			log, dirty = refundOldest(log, op.Refund), true
		}
	}
	ans := Answer{Cap: l.Rate}
	refused := int64(0)
	for _, n := range op.Asks {
		free := max(l.Rate-used(log), 0)
		switch {
		case n < 1:
		case n <= free:
			add(n)
			ans.Granted += n
		case op.Partial && free > 0:
			add(free)
			ans.Granted += free
		case refused == 0 && op.Partial:
			refused = 1
		case refused == 0:
			refused = n
		}
	}
	ans.Level = l.Rate - used(log)
	ans.Retry = l.retry(log, max(refused, 1), now)
	if n := len(log); n > 0 {
		ans.Ends = log[n-1].At + l.Period - now
	}
	return log, ans, dirty
}

// refundOldest takes units off the oldest entries, which would leave first. So no trailing Period counts less than the
// units admitted in it and kept.
func refundOldest(log []Entry, n int64) []Entry {
	for len(log) > 0 && log[0].Units <= n {
		n -= log[0].Units
		log = log[1:]
	}
	if len(log) > 0 {
		log[0].Units -= n
	}
	return log
}

// refundEntry takes units off the entry of a time, if it is still there: the entry of a call that did not happen, which
// is then no admission.
func refundEntry(log []Entry, n, at int64, dirty bool) ([]Entry, bool) {
	i, ok := slices.BinarySearchFunc(log, at, func(e Entry, at int64) int { return cmp.Compare(e.At, at) })
	if !ok {
		return log, dirty
	}
	if log[i].Units -= n; log[i].Units <= 0 {
		log = slices.Delete(log, i, i+1)
	}
	return log, true
}

// retry returns the µs until n units fit, because enough of the oldest have left.
func (l LogWindow) retry(log []Entry, n, now int64) int64 {
	if n > l.Rate {
		return Never
	}
	need := used(log) + n - l.Rate
	if need <= 0 {
		return 0
	}
	i := sort.Search(len(log), func(i int) bool { return used(log[:i+1]) >= need })
	return log[i].At + l.Period - now
}

// TTL returns the ms for which a log written at now must be kept.
func (l LogWindow) TTL(log []Entry, now int64) int64 {
	if len(log) == 0 {
		return 0
	}
	return ceilDiv(log[len(log)-1].At+l.Period-now, 1000) + ClockSlack/1000
}
