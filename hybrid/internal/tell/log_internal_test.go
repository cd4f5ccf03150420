package tell

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
		msg, attrs := whyBroken(tc.late, 250*time.Millisecond, tc.cause)
		if msg != tc.want || len(attrs) != map[string]int{msgStarved: 1}[tc.want] {
			t.Errorf("%v late, %v: %q, %v", tc.late, tc.cause, msg, attrs)
		}
	}
}
