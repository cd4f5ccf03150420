package local

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/conformance"
)

func TestConformance(t *testing.T) {
	spec := conformance.Spec{
		Close:  func(l hybridlimit.Limiter) error { return l.(*Limiter).Close() },
		Policy: "policy.1",
		Exact:  true,
	}
	with := func(maxKeys int) func(testing.TB, hybridlimit.Limit) hybridlimit.Limiter {
		return func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			return must(tb, limit, Config{Name: spec.Policy, MaxKeys: maxKeys})
		}
	}
	spec.Wrap = synctest.Test
	for _, of := range conformance.Algorithms() {
		spec.Name, spec.Bucket, spec.New = of.Name, of.Bucket, with(0)
		spec.Tick = time.Nanosecond
		switch of.Bucket(1, time.Second, 1).Algorithm {
		case hybridlimit.AlgTokenBucket, hybridlimit.AlgLeakyBucket:
			spec.Tick = 2 * time.Nanosecond // ε of the package documentation
		}
		conformance.Run(t, spec)
	}
	// Regression: a test with a window of an hour failed in the last minute of an hour.
	for _, of := range conformance.Algorithms() {
		if algorithm := of.Bucket(1, time.Second, 1).Algorithm; algorithm == hybridlimit.AlgFixedWindow || algorithm == hybridlimit.AlgSlidingWindow {
			late := spec
			late.Name, late.Bucket, late.New, late.Wrap = of.Name+" late in the hour", of.Bucket, with(0), conformance.LateInTheHour
			conformance.Run(t, late)
		}
	}
	spec.Name, spec.Bucket, spec.New, spec.Tick = "one shard", nil, with(1000), 2*time.Nanosecond
	conformance.Run(t, spec)
	for _, of := range conformance.Algorithms() {
		if of.Bucket(1, time.Second, 1).Algorithm == hybridlimit.AlgSlidingLog {
			continue
		}
		critical := spec
		critical.Name, critical.Bucket = of.Name+", the critical class", of.Bucket
		critical.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			return must(tb, limit, Config{Name: spec.Policy, Classes: threeClasses})
		}
		conformance.Run(t, critical)
	}
	spec.Name, spec.Wrap, spec.Bucket = "real time", nil, nil
	conformance.Run(t, spec)
}
