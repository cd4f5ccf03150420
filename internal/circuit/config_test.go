package circuit_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

func TestConfigViolations(t *testing.T) {
	const huge = math.MaxInt64
	for _, test := range []struct {
		name string
		cfg  breaker.Config
		want []string // fields
	}{
		{"zero", breaker.Config{}, nil},
		{"all set", breaker.Config{
			Failures: 1, FailureRatio: 1, MinCalls: 1, Window: time.Millisecond,
			SlowCall: 1, OpenFor: time.Millisecond,
		}, nil},
		{"switched off", breaker.Config{FailureRatio: -1, SlowCall: -1}, nil},
		{"far below zero", breaker.Config{FailureRatio: math.Inf(-1), SlowCall: math.MinInt64}, nil},
		{
			"all wrong",
			breaker.Config{
				Failures: -1, FailureRatio: 1.01, MinCalls: -1, Window: -1,
				SlowCall: huge, OpenFor: -1,
			},
			[]string{"Failures", "FailureRatio", "MinCalls", "Window", "SlowCall", "OpenFor"},
		},
		{"too short", breaker.Config{Window: 9, OpenFor: 9}, []string{"Window", "OpenFor"}},
		{"too long", breaker.Config{Window: huge, OpenFor: huge}, []string{"Window", "OpenFor"}},
		{"not a number", breaker.Config{FailureRatio: math.NaN()}, []string{"FailureRatio"}},
		{"infinite", breaker.Config{FailureRatio: math.Inf(1)}, []string{"FailureRatio"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got, want []string
			for _, v := range circuit.Violations(test.cfg, "HubConfig.Breaker.") {
				got = append(got, v.Field)
			}
			for _, f := range test.want {
				want = append(want, "HubConfig.Breaker."+f)
			}
			if !slices.Equal(got, want) {
				t.Errorf("Violations = %v, want %v", got, want)
			}
			b, err := circuit.New(test.cfg)
			if (err != nil) != (len(want) > 0) || (b == nil) != (err != nil) {
				t.Errorf("New = %v, %v", b, err)
			}
		})
	}
}

func TestNewReportsEverythingAtOnce(t *testing.T) {
	_, err := circuit.New(breaker.Config{Failures: -2, OpenFor: 25 * time.Hour})
	const want = "breaker: Config.Failures (-2) must not be negative; Config.OpenFor (25h0m0s) must be 0 or from 1ms to 24h"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v\nwant %v", err, want)
	}
	invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
	if !ok || invalid.Package != "breaker" || !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("New: %#v", err)
	}
}

func TestClassNames(t *testing.T) {
	for class, want := range map[circuit.Class]string{
		circuit.Success:  "success",
		circuit.Failure:  "failure",
		circuit.Ignored:  "ignored",
		circuit.Class(9): "Class(9)",
	} {
		if got := class.String(); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
	}
}
