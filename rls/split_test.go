package rls

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestSplitOfARule splits the keys of a rule into four parts. A replica uses one of them, and its answers have the
// whole limit. Where there are fewer tags than parts, there are as many parts as tags.
func TestSplitOfARule(t *testing.T) {
	for _, c := range []struct {
		tags  int
		state string
		most  uint32 // of one replica
	}{{16, "of4:", 100}, {2, "of2:", 200}, {1, "", 400}} {
		rdb := redis.NewClient(&redis.Options{Addr: redistest.Mini(t).Addr(), MaxRetries: -1})
		t.Cleanup(func() { rdb.Close() })
		hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{FleetSize: 1, Tags: c.tags, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { hub.Close() })
		s, err := New(hub, Options{Limiter: hybrid.Config{MaxWait: 5 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		load(t, s, `
domain: shop
descriptors:
  - key: hot
    rate_limit: {unit: hour, requests_per_unit: 400, split: 4}
  - key: whole
    rate_limit: {unit: hour, requests_per_unit: 400}
`)
		limit := func(key string, hits uint32) *pb.RateLimitResponse_DescriptorStatus {
			t.Helper()
			req := request("shop", desc(key, "a"))
			req.HitsAddend = hits
			res, err := s.ShouldRateLimit(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return res.GetStatuses()[0]
		}
		if st := limit("hot", c.most); st.GetCode() != pb.RateLimitResponse_OK || st.GetCurrentLimit().GetRequestsPerUnit() != 400 {
			t.Errorf("%d tags: a part: %v", c.tags, st)
		}
		if st := limit("hot", 1); st.GetCode() != pb.RateLimitResponse_OVER_LIMIT || st.GetCurrentLimit().GetRequestsPerUnit() != 400 {
			t.Errorf("%d tags: more than a part: %v", c.tags, st)
		}
		if st := limit("whole", 400); st.GetCode() != pb.RateLimitResponse_OK {
			t.Errorf("%d tags: the whole key: %v", c.tags, st)
		}
		split := keysWith(t, rdb, "of4:") + keysWith(t, rdb, "of2:")
		if want := 1; c.state == "" && split > 0 || c.state != "" && keysWith(t, rdb, c.state) != want {
			t.Errorf("%d tags: %d states of parts", c.tags, split)
		}
	}
}

// keysWith returns the number of keys in Redis that contain a text.
func keysWith(t *testing.T, rdb *redis.Client, text string) (n int) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "hl:v2:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if strings.Contains(key, "@") && strings.Contains(key, text) {
			n++
		}
	}
	return n
}
