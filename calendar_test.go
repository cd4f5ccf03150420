package hybridlimit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func TestCalendarText(t *testing.T) {
	const berlin = "Europe/Berlin"
	window := func(unit hybridlimit.CalendarUnit, zone string, anchor uint16) hybridlimit.Limit {
		return hybridlimit.CalendarWindow(5, hybridlimit.Calendar{Unit: unit, Zone: zone, Anchor: anchor})
	}
	for _, tc := range []struct {
		want  string // what MarshalText gives
		limit hybridlimit.Limit
		also  []string // other texts of the same limit
	}{
		{"5/week", window(hybridlimit.Week, "", 0), []string{"5 per week", "5/Weeks", "5/week calendar window", "5/week in UTC", " 5 / week "}},
		{"5/week from Monday", window(hybridlimit.Week, "", 1), []string{"5/week FROM monday"}},
		{"5/week in Europe/Berlin from Sunday", window(hybridlimit.Week, berlin, 7), []string{"5/week from sunday in Europe/Berlin"}},
		{"5/day in UTC", window(hybridlimit.Day, "", 0), []string{"5/d in UTC", "5/day calendar window", "5 per days in UTC"}},
		{"5/day in Europe/Berlin", window(hybridlimit.Day, berlin, 0), []string{"5/DAY IN Europe/Berlin calendar window"}},
		{"5/month", window(hybridlimit.Month, "", 0), nil},
		{"5/month in Europe/Berlin from day 15", window(hybridlimit.Month, berlin, 15), []string{"5/month from day 15 in Europe/Berlin"}},
		{"5/year from 1 April", window(hybridlimit.Year, "", 401), []string{"5/year from 1 april"}},
		{"5/year from 29 February", window(hybridlimit.Year, "", 229), nil},
		{"5/720h from first use", hybridlimit.WindowFromUse(5, 720*time.Hour), []string{"5/30d from first use", "5/30 days from first use"}},
		{"5/d from first use", hybridlimit.WindowFromUse(5, 24*time.Hour), []string{"5/day from first use"}},
	} {
		if text, err := tc.limit.MarshalText(); string(text) != tc.want || err != nil {
			t.Errorf("%+v: got %q and %v, want %q", tc.limit, text, err, tc.want)
		}
		for _, text := range append(tc.also, tc.want) {
			if got, err := hybridlimit.ParseLimit(text); got != tc.limit || err != nil {
				t.Errorf("%q: got %+v and %v, want %+v", text, got, err, tc.limit)
			}
		}
	}
	if day, err := hybridlimit.ParseLimit("1000/day"); day != hybridlimit.PerDay(1000) || err != nil {
		t.Errorf("1000/day: %+v, %v", day, err)
	}
	for want, limit := range map[string]hybridlimit.Limit{
		"5 per month in Europe/Berlin from day 15 (calendar window)": window(hybridlimit.Month, berlin, 15),
		"5 per 720h from first use (calendar window)":                hybridlimit.WindowFromUse(5, 720*time.Hour),
	} {
		if got := limit.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCalendarTextRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"5/week from day 3":             `expected a day of the week, such as Monday, got "day"`,
		"5/month from Monday":           `expected "day" and a number, got "monday"`,
		"5/month from day 32":           `expected a day from 1 to 31, got "32"`,
		"5/month from day 0":            `expected a day from 1 to 31, got "0"`,
		"5/year from April":             `expected a date such as 1 April, got "april"`,
		"5/year from 1 Avril":           `expected a month such as April, got "avril"`,
		"5/year from 31 April":          `Limit.Calendar.Anchor (431) must be month·100 + day, such as 401 for the first of April`,
		"5/day in UTC from Monday":      `expected no "from": a day begins at midnight`,
		"5/day from Monday":             `expected "first use" for a period of a fixed length, got "monday"`,
		"5/24h in UTC":                  `expected no zone: "in" is for a day, a week, a month or a year`,
		"5/1d in UTC":                   `expected no zone: "in" is for a day, a week, a month or a year`,
		"5/30d from first use in UTC":   `expected no zone: "in" is for a day, a week, a month or a year`,
		"5/month in":                    `expected a time zone such as Europe/Berlin, got nothing`,
		"5/month in Local":              `Limit.Calendar.Zone ("Local") differs between machines: name the zone`,
		"5/month in Europe/Berln":       `Limit.Calendar.Zone ("Europe/Berln") is no time zone of this machine: check the name, or import time/tzdata`,
		"5/month in ../../etc/passwd":   `is no time zone of this machine`,
		"5/month burst 7":               `Limit.Burst (7) must be 0: a window has no burst of its own`,
		"5/month token bucket":          `must be zero: only a calendar window has one`,
		"5/2 weeks":                     `expected a unit`,
		"5/24h calendar window":         `Limit.Period (24h0m0s) must be 0: the calendar has the period; Limit.Calendar.Unit (CalendarUnit(0)) must be Day, Week, Month, Year or FromUse`,
		"5/1500ms from first use":       `Limit.Period (1.5s) must be whole seconds, at least 1s`,
		"5/week from Monday burst 0":    `expected a burst of at least 1, got 0`,
		"5/month in UTC in UTC":         `expected "burst" or an algorithm`,
		"5/month from day 1 from day 2": `expected "burst" or an algorithm`,
	} {
		if got, err := hybridlimit.ParseLimit(text); err == nil || !strings.Contains(err.Error(), want) || got != (hybridlimit.Limit{}) {
			t.Errorf("%q: %+v, %v\nwant %s", text, got, err, want)
		}
	}
}

// All violations of a calendar are in one error.
func TestCalendarViolations(t *testing.T) {
	limit := hybridlimit.Limit{
		Algorithm: hybridlimit.AlgCalendarWindow, Rate: -1, Period: time.Hour, Burst: 3,
		Calendar: hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berln", Anchor: 32},
	}
	const want = `hybridlimit: Limit.Rate (-1) must be at least 1; Limit.Period (1h0m0s) must be 0: the calendar has the period; ` +
		`Limit.Burst (3) must be 0: a window has no burst of its own; Limit.Calendar.Anchor (32) must be 1 to 31; ` +
		`Limit.Calendar.Zone ("Europe/Berln") is no time zone of this machine: check the name, or import time/tzdata`
	if err := limit.Validate(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, tc := range []struct {
		c    hybridlimit.Calendar
		want string
	}{
		{hybridlimit.Calendar{Unit: hybridlimit.Day, Anchor: 1}, "Limit.Calendar.Anchor (1) must be 0: only a week, a month and a year have an anchor"},
		{hybridlimit.Calendar{Unit: hybridlimit.Week, Anchor: 8}, "Limit.Calendar.Anchor (8) must be 1 to 7"},
		{hybridlimit.Calendar{Unit: hybridlimit.Year, Anchor: 1301}, "must be month·100 + day"},
		{hybridlimit.Calendar{Unit: 6}, "Limit.Calendar.Unit (CalendarUnit(6)) must be"},
		{hybridlimit.Calendar{Unit: hybridlimit.FromUse, Zone: "UTC"}, "Limit.Calendar.Zone (\"UTC\") must be empty: a period from the first use has no zone"},
	} {
		if err := hybridlimit.CalendarWindow(1, tc.c).Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.c, err, tc.want)
		}
	}
	bucket := hybridlimit.PerSecond(1)
	bucket.Calendar.Unit = hybridlimit.Day
	if err := bucket.Validate(); err == nil || !strings.Contains(err.Error(), "must be zero: only a calendar window has one") {
		t.Errorf("a bucket with a calendar: %v", err)
	}
}
