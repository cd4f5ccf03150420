package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestSplitKeyIsOneKey has a key that is split into four parts, of which each of some processes uses one. All commands
// show one key, with the figures of its parts together, with and without a hash in place of the key.
func TestSplitKeyIsOneKey(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "0123456789abcdef0123456789abcdef"} {
		t.Run(fmt.Sprint("hashed ", secret != ""), func(t *testing.T) {
			t.Parallel()
			srv := redistest.New(t)
			url, rdb := urlOf(srv), srv.Client(t)
			limit := hybridlimit.TokenBucket(400, time.Hour, 400)
			var first *hybrid.Limiter
			used := map[int]bool{}
			for len(used) < 2 { // processes in two parts
				l, err := hybrid.New(rdb, limit, hybrid.Config{
					Name: "api", Mode: hybrid.ModeExact, MaxWait: 30 * time.Second, Split: func(key string) int { return len(key) },
					Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), HashKeys: hybridlimit.Secret(secret)},
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
				i, err := l.Inspect(t.Context(), "warm")
				if err != nil {
					t.Fatal(err)
				}
				if used[i.Part] {
					continue
				}
				used[i.Part] = true
				if res, err := l.AllowN(t.Context(), "warm", 10); err != nil || !res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
				if first == nil {
					first = l
				}
			}
			if _, err := first.Allow(t.Context(), "x"); err != nil { // a whole key
				t.Fatal(err)
			}
			if err := first.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			var flags []string
			warm := `"warm"`
			if secret != "" {
				file := filepath.Join(t.TempDir(), "secret")
				if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
					t.Fatal(err)
				}
				flags = []string{"-hash-secret-file", file}
				warm = `"` + lua.Names{HashKeys: hybridlimit.Secret(secret)}.Digest("api", "warm") + `"`
			}
			with := func(args ...string) []string { return slices.Concat(args[:1], flags, args[1:]) }
			redistest.Eventually(t, 30*time.Second, "the processes say the number of parts", func() bool {
				_, out, _ := cli(t, url, with("inspect", "-name", "api", "warm")...)
				return strings.Contains(out, "@1of4:")
			})
			expect(t, url, with("top", "-name", "api"), warm, "180.0 left in 2 of 4 parts", "20", "2 keys of api, complete")
			expect(t, url, with("list", "-name", "api", "-limit", "400/h"), warm, "left in 2 of 4 parts", "380 of 400")
			finds(t, url, with("inspect", "-name", "api", "-split", "3", "warm"), "no state under this key")
			digest := lua.Names{HashKeys: hybridlimit.Secret(secret)}.Digest("api", "warm")
			for _, args := range [][]string{with("inspect", "-name", "api", "warm"), with("inspect", "-name", "api", "-split", "4", "warm"), with("inspect", "-name", "api", "-digest", digest)} {
				expect(t, url, args, "380 of 400 units left", "@1of4:", "@2of4:", "@3of4:", "@4of4:")
			}
			expect(t, url, with("inspect", "-name", "api", "x"), "399 of 400 units left")
			expect(t, url, with("reset", "-name", "api", "warm"), "reset to 400/h", "380 of 400 units left")
			if i, err := first.InspectRedis(t.Context(), "warm"); err != nil || i.Redis == nil || i.Redis.Left != 400 {
				t.Errorf("after the reset: %+v, %v", i.Redis, err)
			}
		})
	}
}
