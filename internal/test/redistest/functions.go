package redistest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

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
