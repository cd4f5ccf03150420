package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// The periods are those of the zone: one of these months has an hour more.
func TestPeriods(t *testing.T) {
	for text, want := range map[string]string{
		"10000/month in Europe/Berlin from day 31": "2026-09-30 2026-10-31 31 days 1h0m0s, 2026-10-31 2026-11-30 30 days, 2026-11-30 2026-12-31 31 days, " +
			"2026-12-31 2027-01-31 31 days, 2027-01-31 2027-02-28 28 days",
		"5/week":             "2026-10-05 2026-10-12 7 days, 2026-10-12 2026-10-19 7 days, 2026-10-19 2026-10-26 7 days, 2026-10-26 2026-11-02 7 days, 2026-11-02 2026-11-09 7 days",
		"5/24h fixed window": "2026-10-10 2026-10-11 1 day, 2026-10-11 2026-10-12 1 day, 2026-10-12 2026-10-13 1 day, 2026-10-13 2026-10-14 1 day, 2026-10-14 2026-10-15 1 day",
	} {
		limit, err := hybridlimit.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := periodsFrom(limit, time.Date(2026, 10, 10, 12, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range shown {
			got = append(got, p.Begin.Format(time.DateOnly)+" "+p.End.Format(time.DateOnly)+" "+hours(p.End.Sub(p.Begin)))
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, s, want)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"periods", "5/day in Asia/Tokyo"}, "", nil, &out, &errs); code != 0 || strings.Count(out.String(), "T00:00:00+09:00 to ") != periodsShown {
		t.Errorf("status %d: %s%s", code, &out, &errs)
	}
}
