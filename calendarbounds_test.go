package hybridlimit_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// calendarZones have offsets of quarters of an hour, seconds, changes at midnight, and dates that were skipped.
var calendarZones = []string{
	"", "Europe/Berlin", "Europe/London", "Europe/Lisbon", "Europe/Istanbul", "Europe/Moscow",
	"America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Havana",
	"America/Santiago", "America/Caracas", "America/Anchorage", "America/Metlakatla",
	"Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Asia/Manila", "Asia/Tehran", "Asia/Gaza", "Asia/Beirut", "Asia/Amman",
	"Africa/Cairo", "Africa/Casablanca",
	"Australia/Lord_Howe", "Australia/Sydney", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Chatham",
}

// calendars are all days, weeks and months, and the years with a first, a middle and a rare date.
func calendars() (all []hybridlimit.Calendar) {
	all = append(all, hybridlimit.Calendar{Unit: hybridlimit.Day})
	for anchor := range uint16(7) {
		all = append(all, hybridlimit.Calendar{Unit: hybridlimit.Week, Anchor: anchor + 1})
	}
	for anchor := range uint16(31) {
		all = append(all, hybridlimit.Calendar{Unit: hybridlimit.Month, Anchor: anchor + 1})
	}
	for _, anchor := range []uint16{0, 401, 229} {
		all = append(all, hybridlimit.Calendar{Unit: hybridlimit.Year, Anchor: anchor})
	}
	return all
}

// begins reports whether a period begins with a date, by package time alone.
func begins(c hybridlimit.Calendar, date time.Time) bool {
	anchor, last := int(max(c.Anchor, 1)), date.AddDate(0, 0, 1).Day() == 1
	switch c.Unit {
	case hybridlimit.Week:
		return int(date.Weekday()+6)%7+1 == anchor
	case hybridlimit.Month:
		return date.Day() == anchor || last && date.Day() < anchor
	case hybridlimit.Year:
		month, day := 1, 1
		if c.Anchor != 0 {
			month, day = int(c.Anchor/100), int(c.Anchor%100)
		}
		return int(date.Month()) == month && (date.Day() == day || last && date.Day() < day)
	}
	return true
}

// firstDate returns the first date of the period of a date.
func firstDate(c hybridlimit.Calendar, date time.Time) time.Time {
	for !begins(c, date) {
		date = date.AddDate(0, 0, -1)
	}
	return date
}

// dateIn returns the date of an instant, as midnight in UTC.
func dateIn(at time.Time) time.Time {
	year, month, day := at.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// checkPeriod checks the period of an instant against package time. n is its number.
func checkPeriod(c hybridlimit.Calendar, at, begin, end time.Time, n int) error {
	if at.Before(begin) || !at.Before(end) {
		return errors.New("does not contain the time")
	}
	first := firstDate(c, dateIn(begin))
	before := begin.Add(-time.Second)
	if n%8 == 0 && !firstDate(c, dateIn(before)).Before(first) {
		return errors.New("began before")
	}
	_, was := begin.Add(-27 * time.Hour).Zone()
	if _, is := begin.Zone(); was != is {
		for q := begin.Add(-26 * time.Hour); q.Before(begin); q = q.Add(15 * time.Minute) {
			if !dateIn(q).Before(first) {
				return fmt.Errorf("%v has its date", q)
			}
		}
	}
	inside := begin.Add(time.Duration(int64(n)*7919%int64(end.Sub(begin)/time.Second)) * time.Second)
	for _, same := range []time.Time{end.Add(-time.Second), inside} {
		if b, e, err := c.Bounds(same); err != nil || !b.Equal(begin) || !e.Equal(end) {
			return fmt.Errorf("%v has another one: %v to %v, %v", same, b, e, err)
		}
	}
	return nil
}

// All periods of 400 years follow each other without a gap. Each begins at the first instant whose date is not before
// its first date.
func TestCalendarBounds(t *testing.T) {
	t.Parallel()
	from, to := time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	var periods atomic.Int64
	var group sync.WaitGroup
	turn := make(chan bool, runtime.GOMAXPROCS(0))
	for _, zone := range calendarZones {
		for _, c := range calendars() {
			c.Zone = zone
			group.Go(func() {
				turn <- true
				defer func() { <-turn }()
				var last time.Time
				for at := from; at.Before(to); {
					begin, end, err := c.Bounds(at)
					if err == nil && !last.IsZero() && !begin.Equal(last) {
						err = errors.New("is not the next one")
					}
					if err == nil {
						err = checkPeriod(c, at, begin, end, int(periods.Add(1)))
					}
					if err != nil {
						t.Errorf("%+v: the period %v to %v of %v: %v", c, begin, end, at, err)
						return
					}
					at, last = end, end
				}
			})
		}
	}
	group.Wait()
	if n := periods.Load(); n < 13_000_000 {
		t.Errorf("only %d periods", n)
	}
}

func TestCalendarBoundsByHand(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		c              hybridlimit.Calendar
		at, begin, end time.Time
	}{
		{ // 23 hours
			hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "Europe/Berlin"},
			time.Date(2026, 3, 29, 12, 0, 0, 0, berlin), time.Date(2026, 3, 29, 0, 0, 0, 0, berlin), time.Date(2026, 3, 30, 0, 0, 0, 0, berlin),
		},
		{
			hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin", Anchor: 31},
			time.Date(2027, 2, 28, 23, 59, 59, 0, berlin), time.Date(2027, 2, 28, 0, 0, 0, 0, berlin), time.Date(2027, 3, 31, 0, 0, 0, 0, berlin),
		},
		{
			hybridlimit.Calendar{Unit: hybridlimit.Year, Anchor: 229},
			time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), time.Date(2027, 2, 28, 0, 0, 0, 0, time.UTC),
		},
		{ // Time.ZoneBounds of this time ends before it
			hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "Europe/Berlin"},
			time.Date(2040, 12, 31, 12, 0, 0, 0, berlin), time.Date(2040, 12, 31, 0, 0, 0, 0, berlin), time.Date(2041, 1, 1, 0, 0, 0, 0, berlin),
		},
		{
			hybridlimit.Calendar{Unit: hybridlimit.Week},
			time.Date(2026, 11, 29, 23, 0, 0, 0, time.UTC), time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		},
	} {
		begin, end, err := tc.c.Bounds(tc.at)
		if err != nil || !begin.Equal(tc.begin) || !end.Equal(tc.end) {
			t.Errorf("%+v at %v: %v to %v, %v; want %v to %v", tc.c, tc.at, begin, end, err, tc.begin, tc.end)
		}
	}
}

// A Calendar without dates has no bounds.
func TestCalendarWithoutBounds(t *testing.T) {
	for _, tc := range []struct {
		c    hybridlimit.Calendar
		want error
	}{
		{hybridlimit.Calendar{}, hybridlimit.ErrInvalid},
		{hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "Europe/Berln"}, hybridlimit.ErrInvalid},
		{hybridlimit.Calendar{Unit: hybridlimit.FromUse}, hybridlimit.ErrUnsupported},
	} {
		if begin, end, err := tc.c.Bounds(time.Now()); !errors.Is(err, tc.want) || !begin.IsZero() || !end.IsZero() {
			t.Errorf("%+v: %v to %v, %v", tc.c, begin, end, err)
		}
	}
}

// A period costs no allocation, also the first of a zone that was used before.
func TestCalendarBoundsDoNotAllocate(t *testing.T) {
	c, at := hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin", Anchor: 15}, time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	_, _, _ = c.Bounds(at)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = c.Bounds(at) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
