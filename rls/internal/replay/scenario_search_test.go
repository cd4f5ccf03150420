//go:build search

package replay

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/rls/internal/server"
)

// running is a running hybridlimit-rls.
type running struct {
	pb.RateLimitServiceClient
	config string // the directory of its configuration
	addr   string // of gRPC
}

// start starts a hybridlimit-rls with the variables of their service, and their configuration of test/integration.
func start(t *testing.T, env map[string]string, flags ...string) running {
	t.Helper()
	root := t.TempDir()
	from := filepath.Join(source(t), "test", "integration", "runtime", "current", "ratelimit")
	err := os.CopyFS(filepath.Join(root, "ratelimit"), os.DirFS(from))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit"}
	for name, value := range env {
		all[name] = value
	}
	settings, err := server.ParseFlags(
		append([]string{"-grpc", "127.0.0.1:0", "-http", "", "-poll", "100ms", "-headers", "none"}, flags...),
		func(name string) string { return all[name] }, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	settings.Service.Limiter.MaxWait, settings.SyncTimeout = 10*time.Second, 10*time.Second // a busy machine must not change an answer
	ctx, stop := context.WithCancel(context.Background())
	on, ended := make(chan server.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- server.Run(ctx, settings, io.Discard, func(a server.Addresses) { on <- a })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var at server.Addresses
	select {
	case at = <-on:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return running{pb.NewRateLimitServiceClient(conn), filepath.Join(root, "ratelimit", "config"), at.GRPC}
}

// descriptor returns a descriptor with one entry.
func descriptor(key, value string) *ratelimit.RateLimitDescriptor {
	return &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// ask sends a request with one descriptor, and returns the answer in short.
func (r running) ask(t *testing.T, domain, key, value string) string {
	t.Helper()
	return r.askAll(t, domain, descriptor(key, value))
}

// askAll sends a request, and returns the answer in short. The time until the reset has its own check: it is there, and
// not longer than the unit.
func (r running) askAll(t *testing.T, domain string, descriptors ...*ratelimit.RateLimitDescriptor) string {
	t.Helper()
	res, err := r.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: domain, HitsAddend: 1, Descriptors: descriptors})
	if err != nil {
		return err.Error()
	}
	text := res.GetOverallCode().String()
	for _, s := range res.GetStatuses() {
		text += fmt.Sprintf(" %v %d", s.GetCode(), s.GetLimitRemaining())
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" of %d/%v", l.GetRequestsPerUnit(), l.GetUnit())
			period := map[pb.RateLimitResponse_RateLimit_Unit]float64{
				pb.RateLimitResponse_RateLimit_SECOND: 1, pb.RateLimitResponse_RateLimit_MINUTE: 60, pb.RateLimitResponse_RateLimit_HOUR: 3600,
				pb.RateLimitResponse_RateLimit_DAY: 86400,
			}[l.GetUnit()]
			if left := s.GetDurationUntilReset().AsDuration().Seconds(); left <= 0 || left > math.Ceil(period) {
				text += fmt.Sprintf(", reset in %v s", left)
			}
		}
	}
	if len(res.GetResponseHeadersToAdd()) > 0 {
		text += " and headers"
	}
	return text
}

// basic has the requests of their function testBasicBaseConfig. Those with two rules are in TestScenarioTwoRules. A window of a minute may end between the requests:
// then the requests are repeated with another value.
func basic(t *testing.T, env map[string]string) {
	t.Helper()
	r := start(t, env)
	if got := r.ask(t, "foo", "hello", "world"); got != "OK OK 0" {
		t.Errorf("an unknown domain: %s", got)
	}
	for _, c := range []struct {
		key, unit string
		limit     int
		period    int64
	}{{"key2", "MINUTE", 20, 60}, {"key3", "HOUR", 10, 3600}} {
		want := ""
		for i := range c.limit + 5 {
			if i < c.limit {
				want += fmt.Sprintf("OK OK %d of %d/%s\n", c.limit-1-i, c.limit, c.unit)
			} else {
				want += fmt.Sprintf("OVER_LIMIT OVER_LIMIT 0 of %d/%s\n", c.limit, c.unit)
			}
		}
		got := ""
		for try, moved := 0, true; moved && try < 5; try++ {
			window := time.Now().Unix() / c.period
			got = ""
			for range c.limit + 5 {
				got += r.ask(t, "another", c.key, fmt.Sprint("value", try)) + "\n"
			}
			moved = time.Now().Unix()/c.period != window
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", c.key, got, want)
		}
	}
	if got, want := r.askSoon(t, "basic", "key1"), "OK OK 49 of 50/SECOND"; got != want {
		t.Errorf("50 a second: %s", got)
	}
}

// askSoon asks soon after the start of a second for a value of a limit by the second, because an answer after the end of the second
// has all units left. The process estimates Redis's time, and after its slow first call the error may be a part of a second. If the
// second ended all the same, another value is asked for, up to four times.
func (r running) askSoon(t *testing.T, domain, key string) string {
	t.Helper()
	for try := 0; ; try++ {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1300 * time.Millisecond)))
		second := time.Now().Unix()
		got := r.ask(t, domain, key, fmt.Sprint("soon", try))
		if moved := time.Now().Add(300*time.Millisecond).Unix() != second; !moved || try == 4 {
			return got
		}
	}
}

func TestScenarioBasic(t *testing.T) {
	for _, c := range []map[string]string{
		{},
		{"LOCAL_CACHE_SIZE_IN_BYTES": "1000"},
		{"CACHE_KEY_PREFIX": "prefix"},
		{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true"},
		{"RUNTIME_WATCH_ROOT": "false"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			c["REDIS_URL"] = redistest.New(t).Addr()
			basic(t, c)
		})
	}
}

func TestScenarioAuth(t *testing.T) {
	s := redistest.Mini(t)
	s.RequireAuth("password123")
	basic(t, map[string]string{"REDIS_URL": s.Addr(), "REDIS_AUTH": "password123"})
}

func TestScenarioCluster(t *testing.T) {
	c := redistest.NewCluster(t, 3)
	basic(t, map[string]string{"REDIS_URL": strings.Join(c.Addrs(), ","), "REDIS_TYPE": "cluster"})
}

// Fifteen requests with two rules, of which one has ten units.
func TestScenarioTwoRules(t *testing.T) {
	env := map[string]string{"REDIS_URL": redistest.New(t).Addr()}
	for name, c := range map[string]struct {
		flags []string
		left  func(request int) int // of the rule that denies nothing
	}{
		"differs on purpose: a denied request takes nothing from the other rule": {nil, func(i int) int { return max(10, 19-i) }},
		"passes with -strict-compat": {[]string{"-strict-compat", "-prefix", "strict"}, func(i int) int { return 19 - i }},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, env, c.flags...)
			got, want := "", ""
			for try, moved := 0, true; moved && try < 5; try++ {
				window := time.Now().Unix() / 60
				got, want = "", ""
				for i := range 15 {
					got += r.askAll(t, "another", descriptor("key2", fmt.Sprint("two", try)), descriptor("key3", fmt.Sprint("two", try))) + "\n"
					if i < 10 {
						want += fmt.Sprintf("OK OK %d of 20/MINUTE OK %d of 10/HOUR\n", c.left(i), 9-i)
					} else {
						want += fmt.Sprintf("OVER_LIMIT OK %d of 20/MINUTE OVER_LIMIT 0 of 10/HOUR\n", c.left(i))
					}
				}
				moved = time.Now().Unix()/60 != window
			}
			if got != want {
				t.Errorf("%s\nwant\n%s", got, want)
			}
		})
	}
}

// The reset of a limit of a day is the end of the day, in UTC.
func TestScenarioReset(t *testing.T) {
	r := start(t, map[string]string{"REDIS_URL": redistest.New(t).Addr()})
	req := &pb.RateLimitRequest{Domain: "another", HitsAddend: 1, Descriptors: []*ratelimit.RateLimitDescriptor{descriptor("key4", "durTest")}}
	const day = 86400
	before := time.Now().Unix()
	res, err := r.ShouldRateLimit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	after := time.Now().Unix()
	left := res.GetStatuses()[0].GetDurationUntilReset().GetSeconds()
	if earliest, latest := day-after%day-1, day-before%day+1; before/day == after/day && (left < earliest || left > latest) {
		t.Errorf("reset in %d s, want %d to %d", left, earliest, latest)
	}
}

func TestScenarioShareThreshold(t *testing.T) {
	r := start(t, map[string]string{"REDIS_URL": redistest.New(t).Addr()})
	for try := range 5 {
		window := time.Now().Unix() / 3600
		text := ""
		for i := range 10 {
			if got, want := r.ask(t, "share-threshold-test", "files", "files/a.pdf"), fmt.Sprintf("OK OK %d of 10/HOUR", 9-i); got != want && try == 0 {
				text += fmt.Sprintf("request %d: %s\n", i, got)
			}
		}
		if got := r.ask(t, "share-threshold-test", "files", "files/b.csv"); got != "OVER_LIMIT OVER_LIMIT 0 of 10/HOUR" {
			text += "another value of the wildcard: " + got + "\n"
		}
		for i := range 10 {
			if got := r.ask(t, "share-threshold-test", "files_no_share", fmt.Sprintf("files_no_share/%d-%d", try, i)); got != "OK OK 9 of 10/HOUR" {
				text += fmt.Sprintf("value %d: %s\n", i, got)
			}
		}
		if window == time.Now().Unix()/3600 {
			if text != "" {
				t.Error(text)
			}
			return
		}
	}
}

func TestScenarioReload(t *testing.T) {
	r := start(t, map[string]string{"REDIS_URL": redistest.New(t).Addr()})
	const without, with = "OK OK 0", "OK OK 49 of 50/SECOND"
	if got := r.ask(t, "reload", "key1", "foo"); got != without {
		t.Errorf("before: %s", got)
	}
	if got := r.askSoon(t, "basic", "key1"); got != with {
		t.Errorf("before: %s", got)
	}
	file := filepath.Join(r.config, "reload.yaml")
	data, err := os.ReadFile(filepath.Join(filepath.Dir(r.config), "reload.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	i := 0
	redistest.Eventually(t, time.Minute, "the new file is in force", func() bool {
		i++
		return r.ask(t, "reload", "key1", fmt.Sprint("foo", i)) == with
	})
	if got := r.ask(t, "reload", "block", "foo"); got != "OVER_LIMIT OVER_LIMIT 0 of 0/SECOND" {
		t.Errorf("a limit of nothing: %s", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, time.Minute, "the file is gone", func() bool {
		return r.ask(t, "reload", "key1", "foo") == without
	})
}
