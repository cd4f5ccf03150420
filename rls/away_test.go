package rls

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestCostsWithoutRedis looks before calls and reports their costs while Redis is away: for a replica alone that is as with
// Redis. The key was used before, or is new.
//
// Regression: a look without Redis answered as for an unused key, so that looking and reporting had no limit.
func TestCostsWithoutRedis(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		for _, algorithm := range []string{"fixed window", "sliding window", "sliding log", "token bucket", "leaky bucket"} {
			for _, known := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v, %s, known %t", mode, algorithm, known), virtually(func(t *testing.T) {
					b := redistest.NewBubble(t)
					o := Options{}
					o.Limiter.Mode = mode
					s := newServiceOn(t, b.Client(nil), "domain: llm\ndescriptors:\n- {key: tpm, rate_limit: {unit: year, requests_per_unit: 20, algorithm: "+algorithm+"}}\n", o)
					look := func() string { return ask(t, s, request("llm", hits(desc("tpm", "t"), 0))) }
					served := 0
					ask(t, s, request("llm", desc("tpm", "other")))
					if known {
						look()
						ask(t, s, request("llm", hits(desc("tpm", "t"), 5)))
						served++
						time.Sleep(time.Second)
					}
					b.Kill()
					time.Sleep(3 * time.Second)
					ask(t, s, request("llm", desc("tpm", "other"))) // Redis is known to be away
					time.Sleep(3 * time.Second)
					for range 20 {
						if got := look(); strings.HasPrefix(got, "ok:") {
							ask(t, s, request("llm", hits(desc("tpm", "t"), 5)))
							served++
							if strings.HasSuffix(got, "ok(0)") {
								t.Errorf("a look at nothing is %s", got)
							}
						}
						time.Sleep(time.Second)
					}
					if served < 3 || served > 5 {
						t.Errorf("%d calls of 5 were served of 20", served)
					}
					// A cost above what is left counts too.
					ask(t, s, request("llm", hits(desc("tpm", "u"), 5)))
					ask(t, s, request("llm", hits(desc("tpm", "u"), 30)))
					if got := ask(t, s, request("llm", hits(desc("tpm", "u"), 0))); !strings.HasPrefix(got, "over:") {
						t.Errorf("after 35 of 20: %s", got)
					}
				}))
			}
		}
	}
}
