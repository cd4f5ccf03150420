package runner_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/runner"
)

// TestTheClientsOptionsStay checks that a runner, which works with deadlines of its own,
// leaves the options of the client as they are.
func TestTheClientsOptionsStay(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	before := *rdb.Options()
	r, err := runner.New(rdb, 70*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	after := rdb.Options()
	if before.ContextTimeoutEnabled || after.ContextTimeoutEnabled || after.ReadTimeout != before.ReadTimeout || after.WriteTimeout != before.WriteTimeout {
		t.Errorf("%+v", after)
	}
}
