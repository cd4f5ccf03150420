package rls

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis writes a line for each dial that fails
	os.Exit(m.Run())
}

// newService starts a service with rules and a Redis in memory.
func newService(t testing.TB, yaml string, o Options) *Service {
	t.Helper()
	return newServiceAt(t, redistest.Mini(t).Addr(), yaml, o)
}

func newServiceAt(t testing.TB, addr, yaml string, o Options) *Service {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	return newServiceOn(t, rdb, yaml, o)
}

func newServiceOn(t testing.TB, rdb redis.UniversalClient, yaml string, o Options) *Service {
	t.Helper()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{FleetSize: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	if o.Limiter.MaxWait == 0 {
		o.Limiter.MaxWait = 5 * time.Second // a busy machine must not change an answer
	}
	s, err := New(hub, o)
	if err != nil {
		t.Fatal(err)
	}
	load(t, s, yaml)
	return s
}

// load puts the rules of a file in force.
func load(t testing.TB, s *Service, yaml string) {
	t.Helper()
	set, err := ParseRules([]File{{Name: "test.yaml", Data: []byte(yaml)}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRules(set); err != nil {
		t.Fatal(err)
	}
}

// desc returns a descriptor of pairs of keys and values.
func desc(pairs ...string) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// hits gives a descriptor an addend of its own.
func hits(d *ratelimit.RateLimitDescriptor, n uint64) *ratelimit.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func request(domain string, ds ...*ratelimit.RateLimitDescriptor) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: domain, Descriptors: ds}
}

// ask sends a request and returns the answer as a short text: the overall code, and of
// each descriptor the code and the units left.
func ask(t testing.TB, s *Service, req *pb.RateLimitRequest) string {
	t.Helper()
	res, err := s.ShouldRateLimit(context.Background(), req)
	if err != nil {
		return err.Error()
	}
	return short(res)
}

func short(res *pb.RateLimitResponse) string {
	code := map[pb.RateLimitResponse_Code]string{pb.RateLimitResponse_OK: "ok", pb.RateLimitResponse_OVER_LIMIT: "over"}
	text := code[res.GetOverallCode()] + ":"
	for _, one := range res.GetStatuses() {
		text += " " + code[one.GetCode()]
		if one.GetCurrentLimit() != nil {
			text += fmt.Sprintf("(%d)", one.GetLimitRemaining())
		}
	}
	return text
}

const twoRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: path
    rate_limit: {unit: day, requests_per_unit: 3}
`

func TestBasic(t *testing.T) {
	s := newService(t, twoRules, Options{})
	for i, want := range []string{"ok: ok(4) ok(2)", "ok: ok(3) ok(1)", "ok: ok(2) ok(0)", "over: ok(2) over(0)", "over: ok(2) over(0)"} {
		if got := ask(t, s, request("shop", desc("user", "a"), desc("path", "/"))); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
	if got := ask(t, s, request("shop", desc("user", "a"))); got != "ok: ok(1)" {
		t.Error(got)
	}
}

// hitsOf gives a request an addend.
func hitsOf(req *pb.RateLimitRequest, n uint32) *pb.RateLimitRequest {
	req.HitsAddend = n
	return req
}
