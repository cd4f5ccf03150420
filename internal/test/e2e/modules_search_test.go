//go:build search

package e2e

// The libraries from which docs/migrating.md migrates, and the modules of
// docs/grpc.md and docs/shedding.md, so that they are in go.mod.
import (
	_ "github.com/go-redis/redis_rate/v10"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/throttled/throttled/v2"
	_ "github.com/throttled/throttled/v2/store/goredisstore.v9"
	_ "github.com/ulule/limiter/v3"
	_ "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	_ "github.com/ulule/limiter/v3/drivers/store/redis"
	_ "golang.org/x/time/rate"

	_ "github.com/hybridlimit/hybridlimit/grpclimit"
	_ "github.com/hybridlimit/hybridlimit/shed"
)
