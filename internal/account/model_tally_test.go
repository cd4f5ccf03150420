package account

import (
	"fmt"
	"strings"
)

// modelTally sums up the results of many runs.
type modelTally struct {
	excess, receipt, share float64 // the largest
	bounded, tight         int     // schedules with a bound above 0, and schedules that reached it
	gains, past            int     // schedules with an allowance on top, and schedules that exceeded the bound because of it

	losses, under, over int // schedules with a loss of state; of these, schedules that forgot units, and that debited twice
	twice               int // schedules with two losses before all processes had synced
	most, least         float64
	idle                int // see checkOnce
	beyond              int // with members: above the C of a single process
}

func (s *modelTally) add(pl *modelPlan, o outcome) {
	if o.losses > 0 {
		s.losses++
	}
	if o.twice > 0 {
		s.twice++
	}
	if o.under > 0 {
		s.under++
	}
	if o.over > 0 {
		s.over++
	}
	if o.idle {
		s.idle++
	}
	s.most, s.least = max(s.most, o.over), max(s.least, o.under)
	if pl.outage {
		return
	}
	if o.promised > 0 && o.excess > float64(o.promised)+0.01 {
		s.beyond++
	}
	s.excess = max(s.excess, o.excess)
	if pl.maxWait <= defaultMaxWait {
		s.receipt = max(s.receipt, o.receipt)
	}
	if o.gained > 0 {
		s.gains++
		if o.excess > float64(o.bound) {
			s.past++
		}
		return
	}
	if o.bound > 0 {
		s.bounded++
		s.share = max(s.share, o.excess/float64(o.bound))
		if o.excess >= float64(o.bound) {
			s.tight++
		}
	}
}

func (s *modelTally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "largest excess %.2f units, %.2f when told within 20 ms; %d with a bound above 0, %d reached it", s.excess, s.receipt, s.bounded, s.tight)
	if s.gains > 0 {
		fmt.Fprintf(&b, "; %d with an allowance on top, %d made use of it", s.gains, s.past)
	}
	if s.losses+s.twice+s.over > 0 {
		fmt.Fprintf(&b, "; state lost in %d, twice before all had synced in %d; forgotten in %d, at most %.2f units; debited twice in %d, at most %.2f",
			s.losses, s.twice, s.under, s.least, s.over, s.most)
	}
	if s.idle > 0 {
		fmt.Fprintf(&b, "; a batch that had taken nothing did so when it came again, in %d", s.idle)
	}
	if s.beyond > 0 {
		fmt.Fprintf(&b, "; %d above Overshoot·Burst", s.beyond)
	}
	return b.String()
}
