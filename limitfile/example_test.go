package limitfile_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limitfile"
	"github.com/hybridlimit/hybridlimit/local"
)

// All errors of a file are reported together.
func ExampleParse() {
	_, err := limitfile.Parse("limits.json", []byte(`{
  "api": {
    "limit": "100/s burst 200",
    "keys": {"partner-7": "gold"},
    "Shadow": true
  }
}`))
	fmt.Println(err)
	// Output:
	// limitfile: limits.json:4: api.keys.partner-7 ("gold") is neither a plan of the limiter nor a limit; limits.json:5: api.Shadow (true) is not a field; the fields are limit, plans, keys, shadow, mode, fallback
}

// The text of a file is its content in a normal form.
func ExampleFile_String() {
	f, err := limitfile.Parse("limits.json", []byte(`{"login": {"limit": "5 per minute"}, "api": {"limit": "100/1s", "shadow": true}}`))
	fmt.Println(f)
	fmt.Println(err)
	// Output:
	// {
	//   "api": {
	//     "limit": "100/s",
	//     "shadow": true
	//   },
	//   "login": {
	//     "limit": "5/min"
	//   }
	// }
	//
	// <nil>
}

// A plan is a named limit. The program asks for the plan of a customer, and passes
// its limit to AllowLimit.
func ExampleFile_Plan() {
	f, err := limitfile.Parse("limits.json", []byte(`{"api": {"limit": "10/s", "plans": {"gold": "1000/s burst 3000"}}}`))
	if err != nil {
		panic(err)
	}
	limit, ok := f.Plan("api", "gold")
	fmt.Println(limit, ok)
	_, ok = f.Plan("api", "silver")
	fmt.Println(ok)
	// Output:
	// 1000 per 1s, burst 3000 (token bucket) true
	// false
}

// The limits of a hub come from a file. A change of the file applies within two
// seconds and a tenth.
func ExampleWatch() {
	server, err := miniredis.Run() // a stand-in for Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.json")
	text := `{"api": {"limit": "100/s burst 200", "plans": {"gold": "1000/s"}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}

	log := slog.New(slog.DiscardHandler) // the program's own
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: log})
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	api, err := hub.Limiter(hybridlimit.PerSecond(10), hybrid.Config{Name: "api"})
	if err != nil {
		panic(err)
	}
	limits, err := limitfile.Watch(path, hub, limitfile.Config{Logger: log})
	if err != nil {
		panic(err) // the file is missing or invalid
	}
	defer limits.Close() // before the hub is closed

	fmt.Println(api.Limit())
	gold, ok := limits.Plan("api", "gold") // for a call of AllowLimit
	fmt.Println(gold, ok)
	// Output:
	// 100 per 1s, burst 200 (token bucket)
	// 1000 per 1s, burst 1000 (token bucket) true
}

// fixed is a Hub for one limiter of package local.
type fixed struct{ limiter *local.Limiter }

// SetSettings sets the limit. Without an entry, the limiter gets a default.
func (f fixed) SetSettings(all map[string]hybrid.Settings) error {
	limit := all["uploads"].Limit
	if limit == (hybridlimit.Limit{}) {
		limit = hybridlimit.PerMinute(10)
	}
	return f.limiter.SetLimit(limit)
}

// A Hub of your own sets the limits of other limiters, such as those of package local.
func ExampleHub() {
	uploads, err := local.New(hybridlimit.PerMinute(10), local.Config{Name: "uploads"})
	if err != nil {
		panic(err)
	}
	f, err := limitfile.Parse("limits.json", []byte(`{"uploads": {"limit": "30/min"}}`))
	if err != nil {
		panic(err)
	}
	var hub limitfile.Hub = fixed{uploads} // for Watch, which calls SetSettings
	fmt.Println(hub.SetSettings(f.Settings()), uploads.Policy("k").Limit)
	// Output:
	// <nil> 30 per 1m0s, burst 30 (token bucket)
}
