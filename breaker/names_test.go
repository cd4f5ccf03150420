package breaker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
)

func TestNames(t *testing.T) {
	down := errors.New("dial tcp: connection refused")
	for _, test := range []struct {
		v    fmt.Stringer
		want string
	}{
		{breaker.Closed, "closed"},
		{breaker.HalfOpen, "half-open"},
		{breaker.Open, "open"},
		{breaker.State(9), "State(9)"},
		{
			breaker.Change{From: breaker.Closed, To: breaker.Open, OpenFor: 612345 * time.Microsecond, Cause: down},
			"closed → open for 612ms: dial tcp: connection refused",
		},
		{breaker.Change{From: breaker.HalfOpen}, "half-open → closed"},
	} {
		if got := test.v.String(); got != test.want {
			t.Errorf("String = %q, want %q", got, test.want)
		}
	}
}
