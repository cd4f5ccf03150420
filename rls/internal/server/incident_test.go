package server

import (
	"encoding/json"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestIncidentInOneFleet asks the five questions of an incident, each with one command, on a Redis that replicas of the service and
// processes of the library share. The two have different numbers of tags, which no command is told.
func TestIncidentInOneFleet(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "hybridlimit")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, "github.com/hybridlimit/hybridlimit/cmd/hybridlimit").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	srv := redistest.New(t)
	run := func(status int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), tool, append(args[:1:1], append([]string{"-redis", "redis://" + srv.Addr(), "-timeout", "30s"}, args[1:]...)...)...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Fatalf("%q: status %d, want %d\n%s", args, got, status, out)
		}
		return string(out)
	}
	dir := write(t, t.TempDir(), "a.yaml", "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: 5}\n")
	replicas := []*running{start(t, "-config", dir, "-redis", srv.Addr()), start(t, "-config", dir, "-redis", srv.Addr())}
	hub, err := hybrid.NewHub(srv.Client(t), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), SyncTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	api, err := hub.Limiter(hybridlimit.TokenBucket(1, time.Hour, 5), hybrid.Config{Name: "api", MaxWait: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	alice := clientkey.User("", "alice")
	served := func() bool {
		res, err := api.Allow(t.Context(), alice)
		if err != nil {
			t.Fatal(err)
		}
		return res.Allowed
	}
	passes := func() bool {
		return replicas[0].ask("shop", 0, entry("user", "alice")).GetOverallCode() == pb.RateLimitResponse_OK
	}
	for served() {
	}
	for passes() {
	}

	// Which limits exist, and which keys are denied most?
	var tops []struct {
		Name, Limits string
		Top          []struct{ Key string }
	}
	redistest.Eventually(t, 20*time.Second, "both limiters are listed", func() bool {
		tops = nil
		if err := json.Unmarshal([]byte(run(0, "top", "-by", "emptiest", "-json")), &tops); err != nil {
			t.Fatal(err)
		}
		return len(tops) == 2 && len(tops[0].Top) > 0 && len(tops[1].Top) > 0
	})
	if tops[0].Name != "api" || tops[0].Limits != "1/h burst 5" || tops[0].Top[0].Key != alice || !strings.HasPrefix(tops[1].Name, "rls.shop.") {
		t.Fatalf("%+v", tops)
	}
	service, rule := tops[1].Name, tops[1].Top[0].Key
	if list := run(0, "list"); !strings.Contains(list, "api: 1 processes, limit 1/h burst 5, switch normal") || !strings.Contains(list, service+": 2 processes") {
		t.Errorf("%s", list)
	}
	// Why was alice denied?
	if out := run(0, "inspect", "-name", "api", "-user", "alice"); !strings.Contains(out, "denied for") {
		t.Errorf("%s", out)
	}
	if out := run(0, "inspect", "-name", service, "-for-key", rule, "-limit", "5/365d fixed window"); !strings.Contains(out, "denied for") {
		t.Errorf("%s", out)
	}
	// Raise alice now. A used-up window has the difference at once; a bucket is reset.
	run(0, "limit", "-name", "api", "-user", "alice", "10/h burst 50")
	run(0, "reset", "-name", "api", "-user", "alice")
	run(0, "limit", "-name", service, "-for-key", rule, "500/365d fixed window")
	redistest.Eventually(t, 20*time.Second, "alice is served", served)
	redistest.Eventually(t, 20*time.Second, "alice passes", passes)
	n := 0
	for passes() && n < 1000 {
		n++
	}
	if n < 400 || n > 495 {
		t.Errorf("%d more calls passed under a limit of 500", n)
	}
	// Take the limit out of the way.
	run(0, "switch", "-name", "api", "deny_all")
	redistest.Eventually(t, 20*time.Second, "the switch denies", func() bool { return !served() })
	if out := run(0, "switch", "-name", service, "allow_all"); !strings.Contains(out, "2 processes receive it") {
		t.Errorf("%s", out)
	}
	redistest.Eventually(t, 20*time.Second, "the switch admits", passes)
	// Put it back.
	run(0, "switch", "-name", "api", "normal")
	run(0, "switch", "-name", service, "normal")
	run(0, "limit", "-name", service, "-for-key", rule, "-clear")
	run(0, "limit", "-name", "api", "-user", "alice", "-clear")
	redistest.Eventually(t, 20*time.Second, "the rule denies again", func() bool { return !passes() })
	redistest.Eventually(t, 20*time.Second, "alice has her limit again", func() bool {
		i, err := api.Inspect(t.Context(), alice)
		return err == nil && i.LimitFrom == "config" && i.Switch == "normal"
	})
	run(3, "limit", "-name", service, "-list")
	run(3, "switch", "-name", service+"x", "deny_all")
	run(3, "limit", "-name", service, "-for-key", rule, "5 per fortnight")
}
