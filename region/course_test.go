package region

import (
	"slices"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// newTestCourse is a course with two donors, of which each spares 30 units and refills one in 10 ms, and a permit.
func newTestCourse() *course {
	c := newCourse(&terms{burst: 40, under: 20, donors: []donorTerms{{10, 30, 1e-7}, {10, 30, 1e-7}}})
	c.permitted(1000 * ms)
	return c
}

// TestAsk has the units that are asked for.
func TestAsk(t *testing.T) {
	for _, tc := range []struct {
		name      string
		alter     func(*course)
		left      int64
		processes int64
		now       int64 // ms
		want      []int64
	}{
		{"no denial", func(*course) {}, 0, 1, 1000, []int64{0, 0}},
		{"one unit: of the first", func(c *course) { c.deny(1, 1, 1000*ms) }, 0, 1, 1000, []int64{1, 0}},
		{"as much as was denied", func(c *course) { c.deny(6, 1, 1000*ms) }, 0, 1, 1000, []int64{3, 3}},
		{"in all processes", func(c *course) { c.deny(6, 1, 1000*ms) }, 0, 2, 1000, []int64{6, 6}},
		{"at most the escrow", func(c *course) { c.deny(600, 1, 1000*ms) }, 0, 1, 1000, []int64{10, 10}},
		{"at least the largest call", func(c *course) { c.deny(4, 8, 1000*ms) }, 0, 1, 1000, []int64{4, 4}},
		{"what the bucket has room for", func(c *course) { c.deny(20, 1, 1000*ms) }, 34, 1, 1000, []int64{3, 3}},
		{"in debt too", func(c *course) { c.deny(6, 1, 1000*ms) }, -100, 1, 1000, []int64{3, 3}},
		{"an old denial", func(c *course) { c.deny(6, 1, 0) }, 0, 1, 1000, []int64{0, 0}},
		{"the permit is old", func(c *course) { c.deny(6, 1, 1400*ms) }, 0, 1, 1400, []int64{0, 0}},
		{"there is none", func(c *course) { c.deny(6, 1, 1000*ms); c.permit = 0 }, 0, 1, 1000, []int64{0, 0}},
		{"too soon", func(c *course) { c.deny(6, 1, 1000*ms); c.asked = 916 * ms }, 0, 1, 1000, []int64{0, 0}},
		{"soon enough", func(c *course) { c.deny(6, 1, 1000*ms); c.asked = 915 * ms }, 0, 1, 1000, []int64{3, 3}},
		{"units are under way", func(c *course) { c.deny(6, 1, 1000*ms); c.flying = 1 }, 0, 1, 1000, []int64{0, 0}},
		{"a region rests", func(c *course) { c.deny(6, 1, 1000*ms); c.leave(0, 1001*ms) }, 0, 1, 1000, []int64{0, 6}},
		{"all rest", func(c *course) { c.deny(6, 1, 1000*ms); c.leave(0, 1001*ms); c.leave(1, 1001*ms) }, 0, 1, 1000, []int64{0, 0}},
		{"a region has little", func(c *course) {
			c.deny(20, 1, 1000*ms)
			c.donors[0].at, c.donors[0].left = 900*ms, 0 // and ten units since
		}, 0, 1, 1000, []int64{5, 15}},
		{"units that came were used up", func(c *course) { c.deny(4, 1, 1000*ms); c.came, c.asked = 8, 900*ms }, 0, 1, 1000, []int64{6, 6}},
		{"before the next denial, a few less", func(c *course) { c.last, c.came, c.asked = 900*ms, 10, 900*ms }, 19, 1, 1000, []int64{5, 4}},
		{"but not into half a bucket", func(c *course) { c.last, c.came, c.asked = 900*ms, 10, 900*ms }, 20, 1, 1000, []int64{0, 0}},
	} {
		c := newTestCourse()
		tc.alter(c)
		sum := c.flying
		got := c.ask(tc.left, tc.processes, tc.now*ms)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		for _, n := range got {
			sum += n
		}
		if c.flying != sum || sum > 20 {
			t.Errorf("%s: %d units are under way, want %d", tc.name, c.flying, sum)
		}
	}
}

// TestUnderWay follows the units of one ask, until Redis knows of them.
func TestUnderWay(t *testing.T) {
	c := newTestCourse()
	c.deny(20, 1, 1000*ms)
	c.ask(0, 1, 1000*ms)
	c.deny(20, 1, 1090*ms)
	if give := c.answer(0, 7, 3, 1090*ms); give != 7 || c.flying != 17 || c.given != 7 {
		t.Errorf("gives %d; %+v", give, c)
	}
	if c.mayAsk(0, 1100*ms) {
		t.Error("asks while an ask has no answer")
	}
	c.failed(1, 1300*ms)
	if c.flying != 7 || c.idle() {
		t.Errorf("%+v", c)
	}
	if c.mayAsk(0, 1310*ms) {
		t.Error("asks while Redis does not know of the units")
	}
	c.landed()
	if !c.idle() || !c.mayAsk(0, 1310*ms) {
		t.Errorf("%+v", c)
	}
	if got := c.ask(0, 1, 1310*ms); got[0] != 20 || got[1] != 0 {
		t.Errorf("asks for %v, and the second region rests for 100 ms", got)
	}
}

// TestOldUnits drops units when the permit may be another's.
func TestOldUnits(t *testing.T) {
	for _, tc := range []struct{ at, want int64 }{{1749, 5}, {1750, 0}} {
		c := newTestCourse()
		c.deny(5, 5, 1399*ms)
		c.donors[1].until = 2000 * ms
		c.ask(0, 1, 1399*ms)
		if give := c.answer(0, 5, 0, tc.at*ms); give != tc.want || c.flying != tc.want {
			t.Errorf("after %d ms: gives %d, %d under way; want %d", tc.at-1000, give, c.flying, tc.want)
		}
	}
}

// TestBackoff rests for 100 ms, twice as long after each further refusal, and at most for a second.
func TestBackoff(t *testing.T) {
	c := newTestCourse()
	now := 1000 * ms
	var rests []int64
	for range 6 {
		c.donors[1].until = now * 10
		c.deny(5, 1, now)
		c.permitted(now)
		if got := c.ask(0, 1, now); got[0] != 5 {
			t.Fatalf("%v at %d", got, now/ms)
		}
		c.answer(0, 0, 0, now)
		rests = append(rests, (c.donors[0].until-now)/ms)
		now = c.donors[0].until
	}
	if want := []int64{100, 200, 400, 800, 1000, 1000}; !slices.Equal(rests, want) {
		t.Errorf("rests of %v ms, want %v", rests, want)
	}
	c.deny(5, 1, now)
	c.permitted(now)
	c.ask(0, 1, now)
	if c.answer(0, 2, 0, now); c.donors[0].until > now {
		t.Error("rests after it gave units")
	}
}
