package sometimes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/sometimes"
)

func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := sometimes.Every(time.Second)
		for i, tc := range []struct {
			after   time.Duration
			skipped int64
			ok      bool
		}{
			{0, 0, true}, {0, 0, false}, {time.Second - 1, 0, false}, {1, 2, true}, {time.Hour, 0, true}, {time.Millisecond, 0, false},
		} {
			time.Sleep(tc.after)
			if skipped, ok := line.Due(); skipped != tc.skipped || ok != tc.ok {
				t.Errorf("call %d: %d skipped, due %t; want %d and %t", i, skipped, ok, tc.skipped, tc.ok)
			}
		}
	})
}
