package hybrid

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
)

// TestSetLimitAtOnce checks concurrent calls of SetLimit: the claimed limit, with which the
// limits of other limiters of the identity are compared, is the limit in force. In an earlier
// version one call could set the claim and another call the limit.
func TestSetLimitAtOnce(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}) // no server listens there
	defer rdb.Close()
	l, err := New(rdb, hybridlimit.PerHour(1), Config{Name: "api", Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	id := identity{rdb, l.hub.cfg.Prefix, "api"}
	const callers = 4
	for round := range int64(2000) {
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range int64(callers) {
			wg.Go(func() {
				<-start
				if err := l.SetLimit(hybridlimit.TokenBucket(1+round*callers+i, time.Hour, 10)); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		claims.Lock()
		claimed := claims.held[id].limit
		claims.Unlock()
		if have := l.control.Plan().Limit; have != claimed {
			t.Fatalf("round %d: the limit in force is %v, the claimed limit %v", round, have, claimed)
		}
	}
}
