//go:build search

package global_test

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestStoppedRedisInTime checks the deadlines with a real server whose process is stopped: it
// accepts connections and does not answer.
func TestStoppedRedisInTime(t *testing.T) {
	server := redistest.New(t)
	l := newLimiter(t, server.Client(t, patient), ten, global.Config{})
	allow(t, l, "k", 1)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		deadline, bound time.Duration
		want            error
	}{
		{30 * time.Millisecond, 30 * time.Millisecond, context.DeadlineExceeded},
		{time.Minute, 250 * time.Millisecond, hybridlimit.ErrUnavailable},
	} {
		began := time.Now() // before the context, whose time has begun when this goroutine runs again
		ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
		_, err := l.Allow(ctx, "k")
		cancel()
		wantErr(t, err, tc.want)
		// The client's own time-out is 5 s. The extra second is for a busy machine.
		if d := time.Since(began); d < tc.bound || d > tc.bound+time.Second {
			t.Errorf("took %v, want %v", d, tc.bound)
		}
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "Redis answers again", func() bool {
		_, err := l.Allow(t.Context(), "other")
		return err == nil
	})
}
