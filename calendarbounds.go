package hybridlimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds returns the period that contains a time: from begin until just before end. Both are whole seconds, in the
// zone. A date may be missing in a zone, or come twice: a period begins at the first instant whose date is not before
// its first date. It costs about a µs, and no allocation. The error is that of an invalid Calendar, or of FromUse, whose
// periods depend on use.
func (c Calendar) Bounds(at time.Time) (begin, end time.Time, err error) {
	if c.Unit == FromUse {
		return begin, end, fmt.Errorf("hybridlimit: Bounds: %w: a period from the first use is no date", ErrUnsupported)
	}
	var bad violations
	if c.violations(&bad); len(bad) > 0 {
		return begin, end, bad.err("hybridlimit")
	}
	zone, err := zoneOf(c.Zone)
	if err != nil {
		return begin, end, err
	}
	from, to := dates{c, zone}.of(at.Unix())
	return time.Unix(from, 0).In(zone), time.Unix(to, 0).In(zone), nil
}

// zones has the time zones that were asked for, by name: time.LoadLocation reads a file. Only names of the database are
// in it, some 600. On a file system that ignores case there are more, so their number is bounded.
var (
	zones     sync.Map
	zoneCount atomic.Int64
)

const maxZones = 2048

func zoneOf(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	if zoneCount.Add(1) <= maxZones {
		zones.Store(name, zone)
	}
	return zone, nil
}

// dates computes the periods of a calendar other than FromUse. A date is a number of days since 1970-01-01.
type dates struct {
	Calendar
	zone *time.Location
}

// of returns the period that contains an instant, in seconds since the Unix epoch.
func (d dates) of(at int64) (begin, end int64) {
	local := at + d.offset(at)
	date := local / 86400
	if local%86400 < 0 {
		date--
	}
	first := d.first(date)
	next := d.next(first)
	begin, end = d.begin(first), d.begin(next)
	for at >= end { // the date stepped back after midnight, or a date was skipped
		begin, next = end, d.next(next)
		end = d.begin(next)
	}
	for end == begin { // a date that the zone never had
		next = d.next(next)
		end = d.begin(next)
	}
	return begin, end
}

func (d dates) offset(at int64) int64 {
	_, offset := time.Unix(at, 0).In(d.zone).Zone()
	return int64(offset)
}

// begin returns the first instant whose date in the zone is not before a date. It uses offsets alone: of the last day of
// a leap year after the table of the zone, Time.ZoneBounds returns an end before the time itself (Go 1.26).
func (d dates) begin(date int64) int64 {
	local := date * 86400
	low := local - 16*3600 // no zone was ever 16 h from UTC
	before := d.offset(low)
	at := local - before
	after := d.offset(at - 1)
	if after == before { // no change up to at
		if after = d.offset(at); at+after >= local {
			return at
		}
		return local - after // the clock went back at midnight
	}
	high := at - 1
	for low+1 < high {
		if middle := (low + high) / 2; d.offset(middle) == before {
			low = middle
		} else {
			high = middle
		}
	}
	return max(high, local-after) // the date began with the change, or after it
}

// first returns the first date of the period of a date.
func (d dates) first(date int64) int64 {
	switch d.Unit {
	case Week:
		into := (date + 3 - (d.anchor() - 1)) % 7 // day 0 was a Thursday
		return date - (into+7)%7
	case Month:
		year, month, _ := civil(date)
		if first := d.inMonth(year, month); first <= date {
			return first
		}
		return d.inMonth(year, month-1)
	case Year:
		year, _, _ := civil(date)
		if first := d.inYear(year); first <= date {
			return first
		}
		return d.inYear(year - 1)
	}
	return date
}

// next returns the first date of the period after the one with a first date.
func (d dates) next(first int64) int64 {
	year, month, _ := civil(first)
	switch d.Unit {
	case Week:
		return first + 7
	case Month:
		return d.inMonth(year, month+1)
	case Year:
		return d.inYear(year + 1)
	}
	return first + 1
}

func (d dates) anchor() int64 { return int64(max(d.Anchor, 1)) }

// inMonth returns the first date of the period that begins in a month, which may be 0 or 13.
func (d dates) inMonth(year int, month time.Month) int64 {
	return dateOf(year, month, min(int(d.anchor()), daysIn(year, month)))
}

// inYear returns the first date of the period that begins in a year.
func (d dates) inYear(year int) int64 {
	month, date := time.January, 1
	if d.Anchor != 0 {
		month, date = time.Month(d.Anchor/100), int(d.Anchor%100)
	}
	return dateOf(year, month, min(date, daysIn(year, month)))
}

func dateOf(year int, month time.Month, date int) int64 {
	return time.Date(year, month, date, 0, 0, 0, 0, time.UTC).Unix() / 86400
}

func civil(date int64) (int, time.Month, int) { return time.Unix(date*86400, 0).UTC().Date() }

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}
