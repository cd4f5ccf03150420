package spend_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/spend"
)

func estimator(t *testing.T, cfg spend.EstimatorConfig) *spend.Estimator {
	e, err := spend.NewEstimator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// uses draws what calls use: a lognormal distribution, which has a long tail.
func uses(rng *rand.Rand, median float64) int64 { return int64(median * math.Exp(rng.NormFloat64())) }

// TestEstimatesCoverTheirQuantile checks both sides: too few calls covered, and estimates that are needlessly high.
func TestEstimatesCoverTheirQuantile(t *testing.T) {
	for _, quantile := range []float64{0.5, 0.9, 0, 0.99} {
		e := estimator(t, spend.EstimatorConfig{Quantile: quantile})
		if quantile == 0 {
			quantile = 0.95
		}
		rng := rand.New(rand.NewPCG(1, 1))
		var covered, calls, sum int64
		for range 100_000 {
			n, used := e.Estimate("a", math.MaxInt64), uses(rng, 1000)
			if e.Observe("a", used); calls < 100 { // it learns
				calls++
				continue
			}
			calls++
			sum += n
			if used <= n {
				covered++
			}
		}
		share := float64(covered) / float64(calls-100)
		t.Logf("quantile %.2f: covers %.3f with %.0f units a call, against %.0f at the quantile", quantile, share, float64(sum)/float64(calls), 1000*math.Exp(math.Sqrt2*math.Erfinv(2*quantile-1)))
		if math.Abs(share-quantile) > 0.2*(1-quantile) {
			t.Errorf("quantile %.2f: covers %.3f", quantile, share)
		}
	}
}

// TestEstimatesFollow checks the figures of the comment of Observe.
func TestEstimatesFollow(t *testing.T) {
	e := estimator(t, spend.EstimatorConfig{})
	if got := e.Estimate("a", 4096); got != 4096 {
		t.Errorf("the first estimate is %d, not the ceiling", got)
	}
	for range 19 {
		e.Observe("a", 100)
	}
	e.Observe("a", 70)
	if got := e.Estimate("a", 4096); got != 100 {
		t.Errorf("%d, want the largest use", got)
	}
	steps := func(use int64, done func(n int64) bool) (calls int) {
		for ; !done(e.Estimate("a", math.MaxInt64)); calls++ {
			e.Observe("a", use)
		}
		return calls
	}
	if up := steps(1000, func(n int64) bool { return n >= 1000 }); up < 40 || up > 60 {
		t.Errorf("%d calls until the estimate has grown by ten", up)
	}
	if down := steps(100, func(n int64) bool { return n < 110 }); down < 800 || down > 1000 {
		t.Errorf("%d calls until the estimate has fallen by ten", down)
	}
	if got := e.Estimate("a", 50); got != 50 {
		t.Errorf("%d above the ceiling of 50", got)
	}
}

// TestUselessUses checks the ends of the range.
func TestUselessUses(t *testing.T) {
	e := estimator(t, spend.EstimatorConfig{})
	for range 2000 {
		e.Observe("zero", 0)
		e.Observe("huge", math.MaxInt64)
		e.Observe("bad", -1)
	}
	for class, want := range map[string]int64{"zero": 1, "bad": 7000, "huge": math.MaxInt64 / 2} {
		ceiling := int64(7000)
		if class == "huge" {
			ceiling = math.MaxInt64
		}
		if got := e.Estimate(class, ceiling); got != want && (class != "huge" || got < want) {
			t.Errorf("%s: %d, want %d", class, got, want)
		}
	}
	for _, ceiling := range []int64{0, -5} { // Begin refuses it
		if got := e.Estimate("zero", ceiling); got != ceiling {
			t.Errorf("a ceiling of %d gives %d", ceiling, got)
		}
	}
}

func TestEstimatorConfigIsChecked(t *testing.T) {
	for _, q := range []float64{-0.1, 1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := spend.NewEstimator(spend.EstimatorConfig{Quantile: q, MaxClasses: -3})
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("EstimatorConfig.Quantile (%v)", q)) || !strings.Contains(err.Error(), "MaxClasses (-3)") {
			t.Errorf("%v: %v", q, err)
		}
	}
	estimator(t, spend.EstimatorConfig{Quantile: math.Nextafter(1, 0)}).Observe("a", 1)
}

// TestClassesAreBounded forgets the class that was used the longest ago.
func TestClassesAreBoundedConcurrent(t *testing.T) {
	e := estimator(t, spend.EstimatorConfig{MaxClasses: 2})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1000 {
				e.Observe(fmt.Sprint(i*1000+j), 5)
				e.Estimate("kept", 100)
			}
		})
	}
	all.Wait()
	for _, class := range []string{"a", "b", "c"} {
		e.Observe(class, 7)
	}
	if a, b, c := e.Estimate("a", 100), e.Estimate("b", 100), e.Estimate("c", 100); a != 100 || b != 7 || c != 7 {
		t.Errorf("%d, %d, %d, want 100, 7, 7", a, b, c)
	}
}
