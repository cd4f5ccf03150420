package account

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// The slots of a block pass one after the other. A slot that is taken late is served at once, and the next slot follows at
// least one slot's time later.
func TestBlockPasses(t *testing.T) {
	const each = 10
	type step struct{ now, take, delay, lost, left int64 }
	for name, steps := range map[string][]step{
		"in time":         {{now: 0, take: 2, delay: 100, left: 3}, {now: 90, take: 1, delay: 30, left: 2}, {now: 130, take: 2, delay: 0}},
		"late":            {{now: 101, take: 1, lost: 1, left: 3}, {now: 102, take: 1, delay: 9, left: 2}, {now: 121, take: 1, left: 1}, {now: 131, take: 1, lost: 0, left: 0}},
		"the whole block": {{now: 100, take: 5}},
		"all but one":     {{now: 140, lost: 4, left: 1}, {now: 141, lost: 1}},
		"too late":        {{now: 150, lost: 5}},
	} {
		s := Account{leases: [2]lease{block(5, 100, each)}}
		for _, st := range steps {
			lost := s.expire(st.now)
			if lost != st.lost {
				t.Errorf("%s at %d: %d lost, want %d", name, st.now, lost, st.lost)
			}
			if st.take > 0 {
				if s.AtOnce(st.take) < st.take {
					t.Fatalf("%s at %d: %d are not in hand", name, st.now, st.take)
				}
				if v := s.hand(st.take, st.now); v.Delay != st.delay {
					t.Errorf("%s at %d: a delay of %d, want %d", name, st.now, v.Delay, st.delay)
				}
			}
			if s.Held() != st.left {
				t.Errorf("%s at %d: %d left, want %d", name, st.now, s.Held(), st.left)
			}
		}
	}
}

// The units of a call are served together, so they come from one block. There is no room for a third block.
func TestTwoBlocks(t *testing.T) {
	s := Account{leases: [2]lease{block(2, 100, 10), block(3, 300, 10)}}
	if got := s.AtOnce(5); got != 3 {
		t.Errorf("%d of 5 at once", got)
	}
	if v := s.hand(3, 50); v.Delay != 250 || s.Held() != 2 || s.slotted() != true {
		t.Errorf("%+v, left %+v", v, s.leases)
	}
	if v := s.hand(2, 50); v.Delay != 50 || s.Held() != 0 || s.slotted() {
		t.Errorf("%+v, left %+v", v, s.leases)
	}
	s.leases = [2]lease{block(2, 100, 10), block(3, 300, 10)}
	if lost := s.keep(block(4, 500, 10)); lost != 4 || s.Held() != 5 {
		t.Errorf("%d lost, left %+v", lost, s.leases)
	}
}

// The units of an answer serve the waiting calls in their order. The rest is kept.
func TestSettleSlots(t *testing.T) {
	var s Account
	a := Answer{Answer: algo.Answer{Granted: 3, Lease: 4, Delay: 1, Cap: 10}, each: 1000, At: 5, carried: 3}
	delays, lost := s.settleQueue(&Conditions{Bucket: algo.Bucket{Unit: 1, Refill: 1, Cap: 10, Queue: true}}, a, []int64{1, 9, 2}, 5)
	if len(delays) != 3 || delays[0] != 1000 || delays[1] != -1 || delays[2] != 2000 || lost != 0 {
		t.Errorf("delays %v, %d lost", delays, lost)
	}
	if l := s.leases[0]; l.units != 4 || l.next != 5+4000 || l.end != 5+8000 {
		t.Errorf("%+v", l)
	}
}
