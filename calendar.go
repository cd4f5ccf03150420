package hybridlimit

import (
	"fmt"
	"time"
)

// Calendar says when the periods of an AlgCalendarWindow begin. It is comparable: the zone is a name. With equal zone
// data, all processes and local limiters agree on each period.
type Calendar struct {
	// Unit is the length of a period. The zero Unit is refused.
	Unit CalendarUnit
	// Zone is a name of the IANA time zone database, such as "Europe/Berlin". Zero: UTC. A text of a limit in UTC is
	// read back as zero. "Local" is refused, because it differs between machines. For FromUse it must be zero.
	Zone string
	// Anchor is where a period begins. Zero: the first.
	//   - Week: 1 Monday to 7 Sunday.
	//   - Month: the day, 1 to 31. In a month that lacks the day, it is the last day; the next month has it again.
	//   - Year: month·100 + day: 401 is the first of April. 229 is the last of February in other years.
	//   - Day, FromUse: it must be zero.
	Anchor uint16
}

// CalendarUnit is the length of the periods of a Calendar.
type CalendarUnit uint8

// The units.
const (
	// Day is a day from midnight: 23, 24 or 25 hours where clocks change.
	Day CalendarUnit = iota + 1
	// Week is seven days.
	Week
	// Month is a month from the day of Anchor.
	Month
	// Year is a year from the date of Anchor.
	Year
	// FromUse is a fixed time, Limit.Period, from the first unit that is used after the last period ended.
	FromUse

	calendarUnits
)

var calendarUnitNames = [calendarUnits]string{Day: "day", Week: "week", Month: "month", Year: "year", FromUse: "from first use"}

// String returns the name of the unit in the text of a limit: "month".
func (u CalendarUnit) String() string {
	if u > 0 && u < calendarUnits {
		return calendarUnitNames[u]
	}
	return fmt.Sprintf("CalendarUnit(%d)", uint8(u))
}

// CalendarWindow returns a limit of n units in each period of a calendar.
func CalendarWindow(n int64, c Calendar) Limit {
	return Limit{Algorithm: AlgCalendarWindow, Rate: n, Calendar: c}
}

// WindowFromUse returns a limit of n units in each period. A period begins with the first unit that is used after the
// last one ended.
func WindowFromUse(n int64, period time.Duration) Limit {
	return Limit{Algorithm: AlgCalendarWindow, Rate: n, Period: period, Calendar: Calendar{Unit: FromUse}}
}

// longest is about the longest time of a period: a day more or less does not matter.
func (c Calendar) longest() time.Duration {
	switch c.Unit {
	case Week:
		return 7 * day
	case Month:
		return 31 * day
	case Year:
		return 366 * day
	}
	return day
}

// violations adds those of a Limit.Calendar.
func (c Calendar) violations(bad *violations) {
	most := 0
	switch c.Unit {
	case Day, FromUse:
	case Week:
		most = 7
	case Month:
		most = 31
	case Year:
		if month, date := time.Month(c.Anchor/100), int(c.Anchor%100); c.Anchor != 0 &&
			(month < time.January || month > time.December || date < 1 || date > daysIn(2024, month)) {
			bad.add("Limit.Calendar.Anchor", c.Anchor, "must be month·100 + day, such as 401 for the first of April")
		}
	default:
		bad.add("Limit.Calendar.Unit", c.Unit, "must be Day, Week, Month, Year or FromUse")
	}
	switch {
	case c.Unit == Year || int(c.Anchor) <= most:
	case most == 0:
		bad.add("Limit.Calendar.Anchor", c.Anchor, "must be 0: only a week, a month and a year have an anchor")
	default:
		bad.add("Limit.Calendar.Anchor", c.Anchor, fmt.Sprintf("must be 1 to %d", most))
	}
	switch {
	case c.Zone == "":
	case c.Unit == FromUse:
		bad.add("Limit.Calendar.Zone", c.Zone, "must be empty: a period from the first use has no zone")
	case c.Zone == "Local":
		bad.add("Limit.Calendar.Zone", c.Zone, "differs between machines: name the zone")
	default:
		if _, err := zoneOf(c.Zone); err != nil {
			bad.add("Limit.Calendar.Zone", c.Zone, "is no time zone of this machine: check the name, or import time/tzdata")
		}
	}
}
