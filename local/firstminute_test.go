package local_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// TestFirstMinuteOfABucket checks what docs/choosing.md says of PerMinute: the first minute admits up to twice the limit.
func TestFirstMinuteOfABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := local.New(hybridlimit.PerMinute(60), local.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		admitted := 0
		for began := time.Now(); time.Since(began) <= time.Minute; time.Sleep(100 * time.Millisecond) {
			if res, _ := l.Allow(t.Context(), "k"); res.Allowed {
				admitted++
			}
		}
		if admitted != 120 {
			t.Errorf("the first minute admits %d of 60 a minute, want 120", admitted)
		}
	})
}
