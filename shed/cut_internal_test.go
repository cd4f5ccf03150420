package shed

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/priority"
)

// TestTheCutKeepsTheOrderOfClasses moves the cut over loads of random mixes. At any
// position, a class is shed wholly if a call of a class above is shed.
func TestTheCutKeepsTheOrderOfClasses(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newCut(DefaultStep, 5)
		mix := make([]int, 5) // calls by priority; some have none
		for i := range mix {
			mix[i] = rng.IntN(3) * rng.IntN(400)
		}
		for p, n := range mix {
			for range n {
				c.sheds(priority.Priority(p).RandomLevel())
			}
		}
		for at := range 400 {
			if up := at < 250; up {
				c.noRoom.Add(1)
			}
			before := *c.share.Load()
			c.move(true)
			share := *c.share.Load()
			if share-before > c.step+1e-9 || before-share > c.step+1e-9 {
				t.Fatalf("seed %d: the share went from %v to %v in a tick, the step is %v", seed, before, share, c.step)
			}
			below := int(c.below.Load())
			shed, all := 0.0, 0.0
			for p, n := range mix {
				q := priority.Priority(p)
				inside := min(max(0, below-q.MinLevel()), 100)
				shed, all = shed+float64(n*inside)/100, all+float64(n)
				if p > 0 && inside > 0 && below < q.MinLevel() {
					t.Fatalf("seed %d: priority %d is shed at level %d, and the one below in part", seed, p, below)
				}
			}
			if all > 500 && (shed/all > share+0.1 || shed/all < share-0.1) {
				t.Fatalf("seed %d: %.2f of the calls are shed, want %.2f", seed, shed/all, share)
			}
		}
	}
}

// TestTheCutMovesSlowly gives the times of a rise and a fall with the default Step.
func TestTheCutMovesSlowly(t *testing.T) {
	c := newCut(DefaultStep, 5)
	ticks := func(noRoom int64, to float64) time.Duration {
		for n := 1; ; n++ {
			c.noRoom.Add(noRoom)
			c.move(true)
			if *c.share.Load() == to {
				return time.Duration(n) * tick
			}
		}
	}
	if up := ticks(1000, 1); up < 20*time.Second || up > 20*time.Second+tick {
		t.Errorf("all is shed after %v", up)
	}
	if !c.sheds(c.levels - 1) {
		t.Error("the highest level is spared at a share of 1")
	}
	if down := ticks(0, 0); down < 21*time.Second || down > 21*time.Second+tick {
		t.Errorf("all is back after %v", down)
	}
	c.noRoom.Add(1)
	c.move(true)
	for range 100 {
		c.move(false) // no place is free
	}
	if *c.share.Load() == 0 {
		t.Error("the share fell beside a full worker")
	}
}

// callsFindRoom notes ten calls that find all places free.
func callsFindRoom(c *cut) {
	for range 10 {
		c.note(20, 20)
	}
}

// TestTheCutFallsAtLeastAsFastAsItRises raises the share, and lets it fall beside
// free places.
func TestTheCutFallsAtLeastAsFastAsItRises(t *testing.T) {
	for _, rises := range []int{1, 10, 50, 200} {
		c := newCut(DefaultStep, 5)
		for range rises {
			c.noRoom.Add(1)
			c.move(true)
		}
		callsFindRoom(c)
		c.move(true) // one tick is no proof
		for falls := 1; ; falls++ {
			before := *c.share.Load()
			callsFindRoom(c)
			c.move(true)
			share := *c.share.Load()
			if share == 0 {
				if falls > rises || falls > 61 {
					t.Errorf("%d ticks up, %d down", rises, falls)
				}
				break
			}
			if before-share < c.step-1e-9 {
				t.Fatalf("%d ticks up: the share falls by %v in a tick, want %v at least", rises, before-share, c.step)
			}
		}
	}
}

// TestTheCutRisesOnlyInALastingOverload sheds calls after their wait, for different
// times after places were plenty.
func TestTheCutRisesOnlyInALastingOverload(t *testing.T) {
	c := newCut(DefaultStep, 5)
	overload := func(ticks int) float64 {
		for range ticks {
			c.noRoom.Add(1)
			c.note(0, 20)
			c.move(false)
		}
		return *c.share.Load()
	}
	for range 100 {
		for range plentyTicks {
			callsFindRoom(c)
			c.move(true)
		}
		if share := overload(lastingTicks); share != 0 {
			t.Fatalf("share %v after an overload of %v", share, lasting)
		}
	}
	if share := overload(10); math.Abs(share-10*c.step) > 1e-9 {
		t.Errorf("share %v after a second more, want %v", share, 10*c.step)
	}
	for range 20 { // a free place now and then is not plenty
		c.note(1, 20)
		c.note(0, 20)
		c.move(true)
		overload(1)
	}
	if share := *c.share.Load(); math.Abs(share-30*c.step) > 1e-9 {
		t.Errorf("share %v, want %v", share, 30*c.step)
	}
}

// TestBack compares the time that a shed class is told with the time until the cut
// has left it, for a load that is spread evenly and places that are plenty.
func TestBack(t *testing.T) {
	c := newCut(DefaultStep, 3)
	for range 10 {
		for level := range c.levels {
			c.sheds(level)
		}
	}
	for range 250 { // all is shed
		c.noRoom.Add(1)
		c.move(true)
	}
	for class := range 3 {
		top := (class + 1) * perClass
		told := c.back(top)
		copied := newCut(DefaultStep, 3)
		copied.tracker, copied.quiet = c.tracker, 0
		copied.seen.Store(c.seen.Load())
		copied.share.Store(c.share.Load())
		copied.below.Store(c.below.Load())
		took := time.Duration(0)
		for ; copied.below.Load() > int64(top); took += tick {
			callsFindRoom(copied)
			copied.move(true)
		}
		if class < 2 && (told < took-time.Second || told > took+time.Second) {
			t.Errorf("class %d was told %v, and the cut left it after %v", class, told, took)
		}
		if class == 2 && told != hold {
			t.Errorf("the class at the edge was told %v", told)
		}
	}
}

// TestTheFirstCallsAreNotShed begins with a few calls. A share of few calls is no
// call.
func TestTheFirstCallsAreNotShed(t *testing.T) {
	c := newCut(DefaultStep, 5)
	c.sheds(250)
	c.noRoom.Add(1)
	c.move(true)
	if c.sheds(0) {
		t.Error("a call is shed at a share of 0.5 % of one call")
	}
}
