package redistest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var (
	_ TB = testing.TB(nil)
	_ TB = (*rapid.T)(nil)
)

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Eventually(t, time.Second, "half a second", func() bool { return time.Since(start) >= time.Second/2 })
		r := record(t, func(tb TB) {
			Eventually(tb, time.Second, "the end of the world", func() bool { return false })
		})
		if !strings.Contains(r.fatal, "within 1s: the end of the world") {
			t.Errorf("the message is %q", r.fatal)
		}
		if got := time.Since(start); got != 1500*time.Millisecond {
			t.Errorf("took %s", got)
		}
	})
}
