package runner_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

func TestClosedRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := runner.New(redistest.NewBubble(t).Client(nil), 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		r.Close()
		_, err = r.Batch(t.Context(), wire.Envelope{}, nil)
		if !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Batch: %v", err)
		}
		_, err = r.Heartbeat(t.Context(), pulse("p", time.Second, false))
		if !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Heartbeat: %v", err)
		}
	})
}
