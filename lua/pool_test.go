package lua_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// idle are servers that a test has used and that no test uses now. The tests of this package
// run one after the other, and start a server more than a hundred times otherwise.
var idle []*redistest.Server

// TestMain ends the idle servers.
func TestMain(m *testing.M) {
	status := m.Run()
	for _, s := range idle {
		s.Close()
	}
	os.Exit(status)
}

// pooledStore is realStore on an idle server, which has forgotten all keys, scripts, functions
// and counts.
func pooledStore(t testing.TB, opts ...func(*redis.Options)) store {
	t.Helper()
	redistest.Need(t)
	var server *redistest.Server
	if n := len(idle); n > 0 {
		server, idle = idle[n-1], idle[:n-1]
	} else {
		var err error
		if server, err = redistest.Start(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			server.Close() // it may be broken
			return
		}
		idle = append(idle, server)
	})
	st, ctx := store{rdb: server.Client(t, opts...)}, context.Background()
	for _, words := range [][]any{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"CONFIG", "SET", "maxmemory", "0"}, {"CONFIG", "RESETSTAT"}} {
		if err := st.rdb.Do(ctx, words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	st.rdb.FunctionFlush(ctx) // unknown before Redis 7
	return st
}
