package hybridlimit

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// This file reads and writes the calendar in the text of a limit: "month in Europe/Berlin from day 15", "week from
// Monday", "year from 1 April", "30d from first use".

// calendarUnit reads a unit that only a calendar has: week, month or year.
func (r *reader) calendarUnit() CalendarUnit {
	for unit := Week; unit <= Year; unit++ {
		if r.phrase(unit.String()) || r.phrase(unit.String()+"s") {
			return unit
		}
	}
	return 0
}

// calendar reads the zone and the first date of a period, in either order. plainDay reports that the period is the word
// for a day: with a zone, it is a day of the calendar.
func (r *reader) calendar(l *Limit, plainDay bool) {
	var zone, from bool
	c := &l.Calendar
	for r.problem == "" {
		switch {
		case !zone && r.phrase("in"):
			zone = true
			if plainDay {
				c.Unit, l.Period = Day, 0
			}
			if c.Unit == 0 || c.Unit == FromUse {
				r.fail(`expected no zone: "in" is for a day, a week, a month or a year`)
			}
			c.Zone = r.zone()
		case !from && r.phrase("from"):
			from = true
			r.anchor(c)
		default:
			if c.Unit != 0 {
				l.Algorithm = AlgCalendarWindow
			}
			return
		}
	}
}

// zone reads the name of a time zone, whose case counts.
func (r *reader) zone() string {
	s := r.skipSpace()
	end := strings.IndexFunc(s, unicode.IsSpace)
	if end < 0 {
		end = len(s)
	}
	if end == 0 {
		r.expected("a time zone such as Europe/Berlin")
	}
	at := len(r.text) - len(s)
	r.rest = s[end:]
	if name := r.text[at : at+end]; name != "UTC" {
		return name
	}
	return ""
}

// anchor reads the begin of a period: "Monday", "day 15", "1 April" or "first use".
func (r *reader) anchor(c *Calendar) {
	switch c.Unit {
	case 0:
		if !r.phrase("first use") {
			r.expected(`"first use" for a period of a fixed length`)
		}
		c.Unit = FromUse
	case Week:
		for n := 1; n <= 7; n++ {
			if r.phrase(lower(time.Weekday(n % 7).String())) {
				c.Anchor = uint16(n)
				return
			}
		}
		r.expected("a day of the week, such as Monday")
	case Month:
		if !r.phrase("day") {
			r.expected(`"day" and a number`)
		}
		c.Anchor = uint16(r.dateNumber("a day from 1 to 31"))
	case Year:
		date := r.dateNumber("a date such as 1 April")
		for month := time.January; month <= time.December && r.problem == ""; month++ {
			if r.phrase(lower(month.String())) {
				c.Anchor = uint16(int64(month)*100 + date)
				return
			}
		}
		r.expected("a month such as April")
	default:
		r.fail(`expected no "from": a day begins at midnight`)
	}
}

// dateNumber reads a number from 1 to 31.
func (r *reader) dateNumber(what string) int64 {
	before := r.rest
	n := r.count(what)
	if n < 1 || n > 31 {
		r.rest = before
		r.expected(what)
	}
	return n
}

// calendarText returns the period as text that ParseLimit reads back.
func (l Limit) calendarText() string {
	c := l.Calendar
	if c.Unit == FromUse {
		return periodText(l.Period) + " from first use"
	}
	text := c.Unit.String()
	switch {
	case c.Zone != "":
		text += " in " + c.Zone
	case c.Unit == Day: // "1000/day" is a bucket
		text += " in UTC"
	}
	switch {
	case c.Anchor == 0:
	case c.Unit == Week:
		text += " from " + time.Weekday(c.Anchor%7).String()
	case c.Unit == Month:
		text += fmt.Sprintf(" from day %d", c.Anchor)
	case c.Unit == Year:
		text += fmt.Sprintf(" from %d %v", c.Anchor%100, time.Month(c.Anchor/100))
	}
	return text
}
