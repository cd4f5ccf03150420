package rlqs

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/rls/internal/quotatest"
)

// TestLines has reports whose answers are not what the rules say. The log has a line about each kind.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hub := replica(t, redistest.NewBubble(t))
		var log testenv.Log
		s.log = slog.New(slog.NewTextHandler(&log, nil))
		var e quotatest.Envoy
		for range 2 {
			c := client{}
			c.connect(t, s)
			out, err := c.one.answer(e.Report("nowhere", map[string]string{"k": "v"}, time.Now()), time.Now())
			if err != nil || out.GetBucketAction()[0].GetQuotaAssignmentAction().GetRateLimitStrategy().GetBlanketRule() != typev3.RateLimitStrategy_ALLOW_ALL {
				t.Errorf("an unknown domain: %v, %v", out, err)
			}
		}
		if text := log.Take(); strings.Count(text, "no rules for a domain") != 1 || !strings.Contains(text, "domain=nowhere") {
			t.Errorf("an unknown domain: %s", text)
		}
		c := client{}
		c.connect(t, s)
		_ = hub.Close()
		out, err := c.one.answer(e.Report("d", map[string]string{"k": "secret"}, time.Now()), time.Now())
		if err != nil || len(out.GetBucketAction()) != 0 {
			t.Errorf("without a hub: %v, %v", out, err)
		}
		if text := log.Take(); strings.Count(text, "keeps its assignment, or has none") != 1 || strings.Contains(text, "secret") {
			t.Errorf("without a hub: %s", text)
		}
	})
}
