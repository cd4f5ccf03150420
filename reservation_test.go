package hybridlimit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

func TestCancelGivesBackOnce(t *testing.T) {
	gone := errors.New("gone")
	for _, tc := range []struct {
		name string
		res  hybridlimit.Result
		want int
	}{
		{"taken", hybridlimit.Result{Allowed: true, Granted: 3}, 1},
		{"refused", hybridlimit.Result{}, 0},
		{"shadowed", hybridlimit.Result{Allowed: true, Shadowed: true}, 0},
	} {
		calls := 0
		r := hybridlimit.NewReservation(tc.res, func(context.Context) error { calls++; return gone })
		first, second := r.Cancel(t.Context()), r.Cancel(t.Context())
		if calls != tc.want || (first == gone) != (tc.want == 1) || first != second {
			t.Errorf("%s: %d calls, %v, %v", tc.name, calls, first, second)
		}
	}
	if err := hybridlimit.NewReservation(hybridlimit.Result{Allowed: true}, nil).Cancel(t.Context()); err != nil {
		t.Error(err)
	}
}
