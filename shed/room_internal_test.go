package shed

import (
	"testing"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

// TestANewCallGoesBehindWaitingOnes takes a place that becomes free between the end
// of a call and its gift to a waiting call.
func TestANewCallGoesBehindWaitingOnes(t *testing.T) {
	l := adaptivelimiter.NewBuilder[any]().WithLimits(1, 1, 1).Build()
	r := newRoom(l, 4)
	running, _, _ := r.try(3)
	_, waits, _ := r.try(1)
	running.Record() // not yet leave
	for _, class := range []int{1, 2, 3} {
		if permit, _, _ := r.try(class); permit != nil {
			t.Errorf("a call of class %d went past a waiting call of class 1", class)
		}
	}
	next, ok := l.TryAcquirePermit() // a call of the first class may
	if !ok {
		t.Fatal("no place")
	}
	r.leave(next)
	select {
	case <-waits:
	default:
		t.Error("the call that waits has no place")
	}
}
