package runner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestLoadsAreForgotten checks that nodes with ever new addresses do not fill memory.
func TestLoadsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoads()
		for i := range 100 * loadsKept {
			turn, err := l.begin(t.Context(), target{fmt.Sprint(i), "code"}, l.time())
			if err != nil || turn.mine == nil {
				t.Fatalf("%+v, %v", turn, err)
			}
			turn.mine.end(nil)
			time.Sleep(time.Second)
		}
		if n := len(l.of); n > 2*loadsKept {
			t.Errorf("%d targets are kept", n)
		}
	})
}

// TestLoadsOfALiveClient checks that runners of one client share its loads.
func TestLoadsOfALiveClient(t *testing.T) {
	a, b := redis.NewClient(&redis.Options{}), redis.NewClient(&redis.Options{})
	defer a.Close()
	defer b.Close()
	if first, again := memoryOf(a).loads, memoryOf(a).loads; first != again {
		t.Error("a client has two records of loads")
	}
	if memoryOf(a).loads == memoryOf(b).loads {
		t.Error("two clients share their loads")
	}
}
