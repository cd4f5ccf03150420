package periods

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// The remembered period is that of the calendar, also for times that go back.
func TestAt(t *testing.T) {
	c := hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin", Anchor: 31}
	p := Of(c)
	if Of(c) != p {
		t.Error("limits with one calendar do not share its periods")
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 2000 {
		at := start.Add(time.Duration(i*37%2000) * 11 * time.Hour)
		begin, end, err := c.Bounds(at)
		if err != nil {
			t.Fatal(err)
		}
		_, after, err := c.Bounds(end)
		if err != nil {
			t.Fatal(err)
		}
		want := Period{begin.UnixMicro(), end.UnixMicro(), after.UnixMicro()}
		if got := p.At(at.UnixMicro()); got != want {
			t.Fatalf("at %v: %+v, want %+v", at, got, want)
		}
	}
	now := start.UnixMicro()
	p.At(now)
	if n := testing.AllocsPerRun(100, func() { p.At(now) }); n != 0 {
		t.Errorf("a remembered period: %v allocations", n)
	}
}
