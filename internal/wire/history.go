package wire

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Admission is one entry of a sliding log.
type Admission = algo.Entry

// MaxHistory is the largest number of entries that a page of History should hold. Such a page keeps Redis busy for
// about a millisecond.
const MaxHistory = 250

const (
	historyHead = 3 // values before the entries of a page
	historyEach = 3 // values of an entry
	escaped     = 3 // the most bytes that a byte of a request id takes in escaped form
)

// Page is a part of the admissions of a log within its period.
type Page struct {
	Log  []Admission // the oldest first
	Left int64       // number of entries of the log, counted from the first of this page on
	Now  int64       // µs of Redis time
}

// EncodeHistory returns the KEYS and ARGV of History for a key under a sliding log. The page holds up to most entries.
// It starts behind the entry of the time after, in µs of Redis time; 0: at the oldest entry.
func EncodeHistory(key string, limit hybridlimit.Limit, after int64, most int) (keys, argv []string) {
	return []string{key}, []string{
		strconv.FormatInt(algo.LogOf(limit).Period, 10), strconv.FormatInt(after, 10), strconv.Itoa(most),
	}
}

// DecodeHistory reads the reply to History. For a key without a log, the page is empty.
func DecodeHistory(raw any) (Page, error) {
	list, _ := raw.([]any)
	n := max(0, len(list)-historyHead) / historyEach
	v := valuesOf(raw, historyHead+historyEach*n, "history")
	v.between(1, 1)
	p := Page{Now: v.natural(), Left: v.between(int64(n), maxReply), Log: make([]Admission, 0, n)}
	for range n {
		at, units, escaped := v.natural(), v.between(1, maxReply), v.text(MaxReplyBytes)
		id, err := url.QueryUnescape(escaped)
		v.must(err == nil, escaped)
		p.Log = append(p.Log, Admission{At: at, Units: units, ID: id})
	}
	return result(p, v.err)
}

// ReadHistory joins pages, the oldest entry first. page asks Redis for the page after a time in µs of Redis time.
// ReadHistory returns at most as many entries as the log had at the first page, so entries that are added meanwhile do
// not prolong it. An entry that expires meanwhile may be missing.
func ReadHistory(page func(after int64) (Page, error)) ([]hybridlimit.Admission, error) {
	var log []hybridlimit.Admission
	left, after := int64(math.MaxInt64), int64(0)
	for left > 0 {
		p, err := page(after)
		if err != nil {
			return nil, err
		}
		if left = min(left, p.Left); len(p.Log) == 0 {
			break
		}
		if p.Log[len(p.Log)-1].At <= after {
			return nil, fmt.Errorf("%w: a page of a history does not end later than the page before it", ErrReply)
		}
		p.Log = p.Log[:min(left, int64(len(p.Log)))]
		for _, e := range p.Log {
			log = append(log, hybridlimit.Admission{At: time.UnixMicro(e.At), Units: e.Units, RequestID: e.ID})
		}
		left, after = left-int64(len(p.Log)), p.Log[len(p.Log)-1].At
	}
	return log, nil
}
