package rls

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// A rule with a calendar ends at a border of the calendar, on its first call too, and without one after 30 days.
func TestCalendar(t *testing.T) {
	const yaml = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: month, requests_per_unit: 2, calendar: Europe/Berlin from day 15}
  - key: plain
    rate_limit: {unit: month, requests_per_unit: 2}
`
	s := newService(t, yaml, Options{})
	berlin := hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin", Anchor: 15}
	for i, want := range []string{"OK", "OK", "OVER_LIMIT"} {
		before := time.Now()
		res, err := s.ShouldRateLimit(t.Context(), request("shop", desc("user", "ann")))
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		_, end, err := berlin.Bounds(before)
		if err != nil {
			t.Fatal(err)
		}
		status := res.GetStatuses()[0]
		left := status.GetDurationUntilReset().AsDuration() // in whole seconds, rounded up
		if after.Before(end) && (left < end.Sub(after)-time.Second || left > end.Sub(before)+2*time.Second) {
			t.Errorf("call %d: the period ends in %v, want %v", i, left, end.Sub(after))
		}
		if status.GetCode().String() != want {
			t.Errorf("call %d: %v, want %s", i, status, want)
		}
	}
	res, err := s.ShouldRateLimit(t.Context(), request("shop", desc("plain", "ann")))
	if left := res.GetStatuses()[0].GetDurationUntilReset().AsDuration(); err != nil || left > 30*24*time.Hour {
		t.Errorf("without a calendar: %v, %v", left, err)
	}
}
