package redistest

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// patientTimeout is the time-out of the clients of real servers. A busy machine may need more than go-redis' default of
// 3 s for an answer.
const patientTimeout = 30 * time.Second

// Client returns a client of the Redis at addr, which is closed when the test ends. It has go-redis' defaults, retries
// included, with two exceptions. It waits 30 s for a connection and an answer. It does not ask for maintenance
// notifications: Redis 7.0 does not have them, and each connection would send one command that is refused. opts change
// its options, in order.
func Client(tb TB, addr string, opts ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	o := &redis.Options{
		Addr: addr, MaintNotificationsConfig: noMaintNotifications(),
		DialTimeout: patientTimeout, ReadTimeout: patientTimeout, WriteTimeout: patientTimeout,
	}
	for _, opt := range opts {
		opt(o)
	}
	c := redis.NewClient(o)
	tb.Cleanup(func() { c.Close() })
	return c
}

func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
