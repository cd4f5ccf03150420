package main

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// This file has the border of a day. The clock of the server is set before the load, so that a day ends in the fault.

// dayLoad has limits of days in UTC: one that is never used up, one that is used up at once, and one that is used up
// near the border.
var dayLoad = load{Goroutines: 2, Streams: []stream{
	{Prefix: "hot", Keys: 1, PerSecond: 200, Rate: 20_000, Burst: 20_000, Day: true},
	{Prefix: "tight", Keys: 2, PerSecond: 200, Rate: 200, Burst: 200, Day: true},
	{Prefix: "rare", Keys: 20, PerSecond: 60, Rate: 100, Burst: 100, Day: true},
}}

const (
	dayEndsIn   = 15 * time.Second       // after the clock is set
	strikesAt   = 700 * time.Millisecond // before the border
	borderTakes = 1500 * time.Millisecond
	vagueBorder = 20 * time.Millisecond // a call that ends so near to the border counts in neither day
)

// dayFaults are faults at the border of a day.
func dayFaults() []*fault {
	faults := []*fault{
		{name: "border of a day", strict: true, begin: atBorder(nil)},
		{name: "border of a day, SIGSTOP", strict: true, proof: failedSyncs, begin: atBorder(stopped)},
		{
			name: "border of a day, FLUSHALL", strict: true, proof: resynced, allowed: forgets,
			begin: atBorder(everyNode("FLUSHALL")),
		},
		{
			name: "border of a day, clock +1 h", allowed: allowance{bursts: 1, steps: true},
			begin: func(_ context.Context, s *scene) (func() error, error) {
				s.borderIs(s.clock.now())
				return nil, setClock(s.dir, s.lead+int64(time.Hour/time.Second))
			},
		},
	}
	for _, f := range faults {
		f.load, f.clock, f.alone, f.hold, f.prepare = &dayLoad, true, true, borderTakes, nearBorder
	}
	return faults
}

// untilMidnight returns the time to the end of the day in UTC.
func untilMidnight(now time.Time) time.Duration {
	const day = 24 * time.Hour
	return now.Truncate(day).Add(day).Sub(now)
}

// nearBorder sets the clock of the server to some seconds before the end of a day.
func nearBorder(ctx context.Context, s *scene) error {
	now, err := s.world.nodes[0].admin.Time(ctx).Result()
	if err != nil {
		return err
	}
	s.lead = int64((untilMidnight(now) - dayEndsIn) / time.Second)
	return setClock(s.dir, s.lead)
}

// atBorder waits until just before the border, and begins another fault there.
func atBorder(then act) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		for {
			now, err := s.world.nodes[0].admin.Time(ctx).Result()
			if err != nil {
				return nil, err
			}
			left := untilMidnight(now)
			if left > dayEndsIn+time.Second {
				return nil, errors.New("the day ended before the fault")
			}
			s.borderIs(s.clock.now() + int64(left))
			if left <= strikesAt {
				break
			}
			s.sleep(min(left-strikesAt, 50*time.Millisecond))
		}
		if then == nil {
			return nil, nil
		}
		return then(ctx, s)
	}
}

// borderIs notes the time of the border on the shared clock.
func (s *scene) borderIs(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.border = at
}

// days reports whether the limits are of days.
func (l load) days() bool { return l.Streams[0].Day }

// checkDays compares the units of each of the two days with the bound.
func (v *verdict) checkDays(e *evidence, key keyed, spans []meter.Span) {
	s, n := e.load.Streams[key.stream], e.accounts()
	var days [2]int64
	for _, span := range spans {
		switch {
		case span.End < e.border-int64(vagueBorder):
			days[0] += span.Units
		case span.Begin > e.border+int64(vagueBorder):
			days[1] += span.Units
		}
	}
	worst, bound, who := &v.Alone, s.Rate+int64(len(e.clients)), "admitted by fallbacks"
	if !key.fallback {
		lost := int64(e.allowed.seconds * float64(n*e.load.demand(s)))
		worst, bound, who = &v.Shared, s.Rate+(n-1)*e.credit(s)+lost+e.allowed.bursts*s.Rate, "admitted"
	}
	units := max(days[0], days[1])
	worst.raise(float64(units), float64(bound))
	v.want(units <= bound, brokeBound, "key %s: %d units %s in a day, want at most %d",
		s.key(int(key.key)), units, who, bound)
}
