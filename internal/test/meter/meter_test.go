package meter_test

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

type step struct{ ms, n int64 }

// TestExcess compares the excess of given admissions under each algorithm with results computed by hand.
func TestExcess(t *testing.T) {
	bucket := hybridlimit.TokenBucket(10, time.Second, 5)
	fixed, sliding, log := hybridlimit.FixedWindow(5, time.Second), hybridlimit.SlidingWindow(8, time.Second), hybridlimit.SlidingLog(5, time.Second)
	for _, c := range []struct {
		name  string
		limit hybridlimit.Limit
		steps []step
		want  float64
	}{
		{"nothing", bucket, nil, 0},
		{"a burst", bucket, []step{{0, 5}}, 0},
		{"one more", bucket, []step{{0, 5}, {0, 1}}, 1},
		{"one more, refilled", bucket, []step{{0, 5}, {100, 1}}, 0},
		{"half refilled", bucket, []step{{0, 5}, {50, 1}}, 0.5},
		{"never more than full", bucket, []step{{10_000, 6}}, 1},
		{"debt is kept", bucket, []step{{0, 10}, {100, 1}, {5000, 5}}, 5},
		{"an interval that begins late", bucket, []step{{0, 1}, {10_000, 5}, {10_100, 4}}, 3},

		{"two windows", fixed, []step{{990, 5}, {1000, 5}}, 0},
		{"one window", fixed, []step{{0, 5}, {999, 1}}, 1},
		{"an excess is carried", fixed, []step{{0, 6}, {1000, 6}}, 2},
		{"and repaid", fixed, []step{{0, 6}, {1000, 4}, {2000, 5}}, 1},
		{"or not needed any more", fixed, []step{{0, 7}, {3000, 6}}, 2},
		{"and what is unused is not", fixed, []step{{0, 1}, {1000, 6}}, 1},
		{"of several windows", fixed, []step{{0, 13}, {1000, 1}}, 9 - 5 + 4},
		{"a step back stays in the window", fixed, []step{{2100, 5}, {1900, 1}}, 1},
		{"a long one takes it along", fixed, []step{{9100, 5}, {1900, 1}, {2000, 5}}, 1},

		{"an estimate", sliding, []step{{0, 8}, {1500, 4}}, 0},
		{"above", sliding, []step{{0, 8}, {1500, 5}}, 1},
		{"of the last window only", sliding, []step{{0, 8}, {2000, 8}}, 0},
		{"at its begin", sliding, []step{{0, 8}, {1000, 1}}, 1},
		{"a quarter", sliding, []step{{0, 8}, {1250, 3}}, 1},

		{"a log", log, []step{{0, 5}, {1000, 5}}, 0},
		{"a ms early", log, []step{{0, 3}, {1, 2}, {1000, 4}}, 1},
		{"once", log, []step{{0, 9}, {1000, 5}}, 4},
		{"taken along", log, []step{{9000, 5}, {1000, 1}, {2000, 5}}, 1},
	} {
		m := meter.Of(c.limit)
		for _, s := range c.steps {
			m.Admit(s.ms*1e6, s.n)
		}
		if got := m.Excess(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %s: %v, want %v", c.limit, c.name, got, c.want)
		}
	}
}

// TestChange changes the limit of a bucket. Used units stay used, unused units above the new burst are gone, and the excess stays.
func TestChange(t *testing.T) {
	of := func(perSecond, burst int64) algo.Bucket {
		return algo.BucketOf(hybridlimit.TokenBucket(perSecond, time.Second, burst))
	}
	for _, c := range []struct {
		name   string
		before []step
		to     algo.Bucket
		after  []step
		want   float64
	}{
		{"used units stay used", []step{{0, 8}}, of(30, 20), []step{{0, 2}}, 0},
		{"and one more is one too many", []step{{0, 8}}, of(30, 20), []step{{0, 3}}, 1},
		{"the old rate until then, the new one from then on", []step{{0, 10}, {1000, 0}}, of(30, 20), []step{{1100, 13}}, 0},
		{"not the new one before", []step{{0, 10}}, of(30, 40), []step{{1100, 14}}, 1},
		{"a smaller burst", nil, of(10, 3), []step{{1000, 4}}, 1},
		{"the excess stays", []step{{0, 12}}, of(7, 100), []step{{90_000, 1}}, 2},
	} {
		m := meter.NewBucket(of(10, 10))
		for _, s := range c.before {
			m.Admit(s.ms*1e6, s.n)
		}
		at := int64(0)
		if len(c.after) > 0 && c.after[0].ms >= 1000 {
			at = 1e9
		}
		m.Change(at, c.to)
		for _, s := range c.after {
			m.Admit(s.ms*1e6, s.n)
		}
		if got := m.Excess(); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Units that were admitted in the last window count there, regardless of when they are reported.
func TestLate(t *testing.T) {
	m := meter.Of(hybridlimit.FixedWindow(5, time.Second))
	m.Admit(0, 5)
	if m.Late(1.1e9, 0.9e9, 2); !m.Holds(1.1e9, 3) || m.Holds(1.1e9, 4) {
		t.Error("two units of the last window are not carried into this one")
	}
	s := m.Seen(1.1e9)
	if s.Admit(1.2e9, 3); !m.Holds(1.2e9, 3) || s.Holds(1.2e9, 1) {
		t.Error("the copy and the original are not independent")
	}
}

func TestOutput(t *testing.T) {
	for _, c := range []struct {
		steps []step
		want  float64
	}{
		{[]step{{0, 3}}, 0},
		{[]step{{0, 1}, {100, 1}, {200, 1}}, 0},
		{[]step{{0, 2}, {200, 1}}, 0},
		{[]step{{0, 1}, {50, 1}}, 0.5},
		{[]step{{0, 3}, {100, 1}, {1000, 1}}, 2},
	} {
		o := meter.NewOutput(algo.BucketOf(hybridlimit.LeakyQueue(10, time.Second, 5)))
		for _, s := range c.steps {
			o.Leave(s.ms*1e6, s.n)
		}
		if got := o.Excess(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.steps, got, c.want)
		}
	}
}

func TestDepth(t *testing.T) {
	b := meter.NewBucket(algo.BucketOf(hybridlimit.LeakyQueue(10, time.Second, 5)))
	b.Admit(0, 3)
	if got := b.Depth(50e6, 1); got != 350e6 {
		t.Errorf("Depth = %d ns, want 350 ms: four units less the half that was served", got)
	}
}
