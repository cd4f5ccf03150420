package hybrid

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// TestWhyBroken checks that a process without processor time does not blame Redis, and that it does if Redis is gone.
func TestWhyBroken(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, tc := range []struct {
		late  time.Duration
		cause error
		want  string
	}{
		{0, context.DeadlineExceeded, msgBroken},
		{60 * time.Millisecond, context.DeadlineExceeded, msgBroken},
		{63 * time.Millisecond, context.DeadlineExceeded, msgStarved},
		{time.Second, fmt.Errorf("slow: %w", breaker.ErrSlow), msgStarved},
		{time.Second, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, msgStarved},
		{time.Second, refused, msgBroken},
		{time.Second, fmt.Errorf("%w (%w)", refused, context.DeadlineExceeded), msgBroken},
		{time.Second, io.EOF, msgBroken},
		{time.Second, nil, msgBroken},
	} {
		msg, attrs := whyBroken(tc.late, defaultTimeout, tc.cause)
		if msg != tc.want || len(attrs) != map[string]int{msgStarved: 1}[tc.want] {
			t.Errorf("%v late, %v: %q, %v", tc.late, tc.cause, msg, attrs)
		}
	}
}

// TestLong checks that a wait is evidence against Redis only if it is long beside the round trip, without the time by which the
// process itself is late.
func TestLong(t *testing.T) {
	for _, tc := range []struct {
		late, trip, wait time.Duration
		want             bool
	}{
		{0, 0, 4 * time.Millisecond, false},
		{0, 0, 5 * time.Millisecond, true},
		{30 * time.Millisecond, 0, 34 * time.Millisecond, false},
		{30 * time.Millisecond, 0, 35 * time.Millisecond, true},
		{0, 10 * time.Millisecond, 39 * time.Millisecond, false},
		{0, 10 * time.Millisecond, 40 * time.Millisecond, true},
	} {
		h := &Hub{clock: clock.New(func() {}), engine: ratesync.New(ratesync.Config{
			Names: lua.Names{Tags: 1}, Timeout: time.Second, Late: func() time.Duration { return tc.late },
		})}
		h.trip.Store(int64(tc.trip))
		if got := h.long(tc.wait); got != tc.want {
			t.Errorf("late by %v, a round trip of %v: %v is long: %t", tc.late, tc.trip, tc.wait, got)
		}
	}
}
