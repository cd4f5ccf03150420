package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHistoryOfTheFirstPage checks that the first page gets the calls since the start,
// that the load waits for a page after two minutes, and that a page which comes much
// later still gets a chart without the time in which nothing happened.
func TestHistoryOfTheFirstPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(nil)
		pages := newFeed()
		f, err := newFleet(s, pages.send, pages.watched)
		if err != nil {
			t.Fatal(err)
		}
		spans := func() (first, last int64) {
			h := f.history()
			for _, s := range h.Samples {
				if s.Offered == 0 && s.At > 1000 {
					t.Errorf("no calls at %d ms", s.At)
				}
			}
			return h.Samples[0].At - h.Samples[0].Span, h.Samples[len(h.Samples)-1].At
		}
		time.Sleep(15 * time.Second)
		if first, last := spans(); first > 250 || last < 14_500 {
			t.Errorf("after 15 s the history is from %d to %d ms", first, last)
		}
		time.Sleep(10 * time.Minute)
		if !f.told("the load waits") {
			t.Error("no page is open for ten minutes, and the load goes on")
		}
		page, err := pages.open()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range page {
			}
		}()
		time.Sleep(5 * time.Second)
		first, last := spans()
		if last-first < 65_000 || last > 130_000 {
			t.Errorf("after ten minutes without a page the history is from %d to %d ms", first, last)
		}
		h := f.history()
		longest := int64(0)
		for i, s := range h.Samples[1:] {
			longest = max(longest, s.At-s.Span-h.Samples[i].At)
		}
		// The calls in flight end first, within seconds.
		if limit := maxGap.Milliseconds() + 2*initial.CallMs; longest == 0 || longest > limit {
			t.Errorf("the pause is %d ms long in the chart, want at most %d", longest, limit)
		}
		f.close()
		pages.close()
		s.close()
		time.Sleep(time.Second)
	})
}

// TestOutageOfTenSeconds checks that Redis comes back by itself, that each second is
// told, and that another order cancels this.
func TestOutageOfTenSeconds(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		for _, kind := range []string{"kill", "hang"} {
			f.hit(t, fault{Action: kind, ForMs: 10_000})
			if s := f.seen(t).Redis; s.State == redisUp || s.BackIn != 10 {
				t.Errorf("%s: at once: %+v", kind, s)
			}
			time.Sleep(6500 * time.Millisecond)
			if s := f.seen(t).Redis; s.State == redisUp || s.BackIn != 4 {
				t.Errorf("%s: after 6.5 s: %+v", kind, s)
			}
			time.Sleep(4 * time.Second)
			if s := f.seen(t).Redis; s.State != redisUp || s.BackIn != 0 {
				t.Errorf("%s: after 10.5 s: %+v", kind, s)
			}
		}
		for _, want := range []string{"Redis is killed for 10 s:", "Redis is back, with nothing in it", "Redis hangs for 10 s:", "Redis answers normally again"} {
			if !f.told(want) {
				t.Errorf("the log lacks %q:\n%v", want, f.log.all())
			}
		}
		time.Sleep(5 * time.Second)
		for _, b := range f.seen(t).Bounds {
			if b.Verdict == "broken" {
				t.Errorf("%+v", b)
			}
		}
		f.hit(t, fault{Action: "kill", ForMs: 10_000})
		f.hit(t, fault{Action: "kill"}) // for as long as I like
		time.Sleep(11 * time.Second)
		if s := f.seen(t).Redis; s.State != redisDead || s.BackIn != 0 {
			t.Errorf("killed again without a length: %+v", s)
		}
		f.hit(t, fault{Action: "restore"})
		if s := f.seen(t).Redis; s.State != redisUp {
			t.Errorf("%+v", s)
		}
	})
	for q, want := range map[fault]string{
		{Action: "kill", ForMs: -1}:           "for_ms (-1) must be 0 to 60000",
		{Action: "hang", ForMs: 60_001}:       "for_ms (60001) must be 0 to 60000",
		{Action: "slow", Ms: 30, ForMs: 10}:   "for_ms (10) is for kill and hang only",
		{Action: "wipe", ForMs: 10}:           "for_ms (10) is for kill and hang only",
		{Action: "restore", Ms: 1, ForMs: 10}: "for_ms (10) is for kill and hang only",
	} {
		if err := q.violations().Err("playground"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
	}
}
