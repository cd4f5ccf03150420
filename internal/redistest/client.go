package redistest

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a client of the Redis at addr, which is closed when the test
// ends. It has go-redis' defaults, retries included, except that it does not
// ask for maintenance notifications. Redis 7.0 does not have them, and each
// connection would send one command that is refused. opts change its options,
// in order.
func Client(tb TB, addr string, opts ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	o := &redis.Options{Addr: addr, MaintNotificationsConfig: noMaintNotifications()}
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
