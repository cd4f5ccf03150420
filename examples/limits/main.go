// Limits shows a limit that changes while the program runs: it comes from a file. The program brings a stand-in for
// Redis, writes the file, changes it four times, and prints how many calls are admitted. It needs only Go.
//
//	go run ./examples/limits
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limitfile"
)

func main() {
	if err := start(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

// start starts a Redis and runs play.
func start(ctx context.Context, out io.Writer) error {
	m, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return play(ctx, out, rdb, filepath.Join(dir, "limits.json"))
}

// steps are the contents of the file, and the callers that then call 100 times each.
var steps = []struct {
	why, text string
	callers   []string
}{
	{
		"A limit for everybody.",
		`{"api": {"limit": "10/d"}}`,
		[]string{"alice"},
	},
	{
		"A larger one. Alice has used 10 units, and they stay used: a change refills nothing.",
		`{"api": {"limit": "20/d"}}`,
		[]string{"alice", "bob"},
	},
	{
		"A plan, and a key that has it. The program looks up the plan by its name, too.",
		`{"api": {"limit": "20/d", "plans": {"gold": "50/d"}, "keys": {"partner-7": "gold"}}}`,
		[]string{"carol", "partner-7"},
	},
	{
		"An error: the limits stay as they were.",
		`{"api": {"limit": "20 a day"}}`,
		[]string{"dave"},
	},
	{
		"Shadow: all calls are admitted, and the denials are only counted.",
		`{"api": {"limit": "20/d", "shadow": true}}`,
		[]string{"alice"},
	},
}

// play writes the file of each step, waits until the process has read it, and makes the
// calls. Without an entry in the file, the limiter "api" has the limit in the code.
func play(ctx context.Context, out io.Writer, rdb redis.UniversalClient, path string) error {
	if err := replace(path, steps[0].text); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler) // the program's own
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: log})
	if err != nil {
		return err
	}
	defer hub.Close()
	api, err := hub.Limiter(hybridlimit.PerDay(5), hybrid.Config{Name: "api"})
	if err != nil {
		return err
	}
	limits, err := limitfile.Watch(path, hub, limitfile.Config{Every: 100 * time.Millisecond, Logger: log})
	if err != nil {
		return err // the file is missing or invalid
	}
	defer limits.Close() // before the hub
	for i, s := range steps {
		if err := replace(path, s.text); err != nil {
			return err
		}
		await(limits, s.text)
		fmt.Fprintf(out, "%d. %s\n   %s\n", i+1, s.why, s.text)
		if err := limits.Err(); err != nil {
			fmt.Fprintf(out, "   %s\n", strings.ReplaceAll(err.Error(), path, "limits.json"))
		}
		if gold, ok := limits.Plan("api", "gold"); ok {
			fmt.Fprintf(out, "   plan gold: %v\n", gold)
		}
		for _, key := range s.callers {
			admitted := 0
			for range 100 {
				res, err := api.Allow(ctx, key)
				if err != nil {
					return err
				}
				if res.Allowed {
					admitted++
				}
			}
			fmt.Fprintf(out, "   %-9s %3d of 100 calls admitted\n", key, admitted)
		}
	}
	return nil
}

// await waits until the process has read a text.
func await(limits *limitfile.Set, text string) {
	want, invalid := limitfile.Parse("limits.json", []byte(text))
	for invalid != nil && limits.Err() == nil || invalid == nil && limits.File().String() != want.String() {
		time.Sleep(10 * time.Millisecond)
	}
}

// replace writes a new file and renames it over the old one, so that no reader sees a part of it.
func replace(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
