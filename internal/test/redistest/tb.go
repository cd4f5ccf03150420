package redistest

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// TB has the methods of a test that this package needs. *testing.T, *testing.B, *testing.F and *rapid.T implement it.
// testing.TB is not used for two reasons: types outside package testing, such as rapid's, cannot implement it, and the
// import of testing would be in every program that uses [Start].
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// pollEvery is much shorter than a scheduler's time slice. It is much longer than the cost of a polled condition (a
// mutex, or one round trip on loopback).
const pollEvery = time.Millisecond

// Eventually polls cond until it holds, and fails the test if it does not hold within the given time. what completes
// the sentence "did not happen: ...". Give a generous time: a loaded machine is slow, and only a failing test uses all
// of it. Eventually works in a synctest bubble too, in virtual time.
func Eventually(tb TB, within time.Duration, what string, cond func() bool) {
	tb.Helper()
	if !poll(within, cond) {
		tb.Fatalf("did not happen within %s: %s", within, what)
	}
}

// poll calls cond until it returns true, and reports whether it did so within the given time. cond runs at least once,
// and once more after the last wait.
func poll(within time.Duration, cond func() bool) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(pollEvery) {
		if cond() {
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
	}
}

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

// NeedFunctions skips a test with a clear message on a server without Redis Functions: a server before Redis 7, or
// miniredis.
func NeedFunctions(tb TB, rdb *redis.Client) {
	tb.Helper()
	err := rdb.FunctionList(context.Background(), redis.FunctionListQuery{}).Err()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "unknown command"):
		tb.Skipf("SKIPPED: THIS SERVER HAS NO FUNCTIONS (Redis 7 has, miniredis has not): %v", err)
	default:
		tb.Fatalf("FUNCTION LIST: %v", err)
	}
}
