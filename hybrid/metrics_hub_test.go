package hybrid_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// several is one provider of several hubs. It keeps the callback of each hub.
type several struct {
	noop.MeterProvider
	of []*metertest.Provider
}

func (s *several) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	s.of = append(s.of, &metertest.Provider{})
	return s.of[len(s.of)-1].Meter(name, opts...)
}

// series returns the series that a hub exports, and the hub names in them. It checks that
// each series has a hub or a policy.
func series(t *testing.T, m *metertest.Provider) (hubs []string, all map[string]int64) {
	t.Helper()
	all = m.Collect(t)
	for at := range all {
		_, set, _ := strings.Cut(strings.TrimSuffix(at, "}"), "{")
		if hub, ok := strings.CutPrefix(set, "rate_limiting.hub="); ok && !slices.Contains(hubs, hub) {
			hubs = append(hubs, hub)
		} else if !ok && !strings.Contains(set, "rate_limiting.policy=") {
			t.Errorf("%s has neither a hub nor a policy", at)
		}
	}
	return hubs, all
}

// TestHubsOfOneProvider checks that hubs of one MeterProvider export different series. In an
// earlier version they overwrote each other: an open breaker was shown as closed by the hub
// that was observed last.
func TestHubsOfOneProvider(t *testing.T) {
	p := &several{}
	named := func(cfg hybrid.HubConfig) *hybrid.Hub {
		cfg.MeterProvider = p
		return newHub(t, nobody(t), cfg)
	}
	want := []string{"hl", "hl-2", "shop", "eu-west", "hl/api", "hl/login", "eu-west-2"}
	first := named(hybrid.HubConfig{})
	second := named(hybrid.HubConfig{})
	named(hybrid.HubConfig{Prefix: "shop"})
	named(hybrid.HubConfig{Name: "eu-west"})
	for _, name := range []string{"api", "login"} {
		newLimiter(t, nobody(t), still(1), hybrid.Config{Name: name, Hub: hybrid.HubConfig{MeterProvider: p}})
	}
	named(hybrid.HubConfig{Name: "eu-west"})
	seen := map[string]int64{}
	for i, m := range p.of {
		hubs, all := series(t, m)
		if !slices.Equal(hubs, want[i:i+1]) {
			t.Errorf("hub %d is called %q, want %q", i, hubs, want[i])
		}
		for at := range all {
			if _, twice := seen[at]; twice {
				t.Errorf("two hubs export %s", at)
			}
		}
		maps.Copy(seen, all)
	}
	// A name becomes free when its hub is closed. A second Close must not free it again.
	second.Close()
	second.Close()
	named(hybrid.HubConfig{})
	second.Close()
	named(hybrid.HubConfig{})
	first.Close()
	named(hybrid.HubConfig{})
	for i, name := range []string{"hl-2", "hl-3", "hl"} {
		if hubs, _ := series(t, p.of[len(want)+i]); !slices.Equal(hubs, []string{name}) {
			t.Errorf("later hub %d is called %q, want %q", i, hubs, name)
		}
	}
	// Another provider has names of its own. A provider that cannot be compared does
	// no harm.
	m := &metertest.Provider{}
	newHub(t, nobody(t), hybrid.HubConfig{MeterProvider: m})
	if hubs, _ := series(t, m); !slices.Equal(hubs, []string{"hl"}) {
		t.Errorf("of another provider: %q", hubs)
	}
	newHub(t, nobody(t), hybrid.HubConfig{MeterProvider: uncomparable{f: func() {}}})
	if _, err := hybrid.NewHub(nobody(t), hybrid.HubConfig{Name: "eu west"}); err == nil || !strings.Contains(err.Error(), `HubConfig.Name ("eu west") must match`) {
		t.Errorf("a name with a space: %v", err)
	}
}

type uncomparable struct {
	noop.MeterProvider
	f func()
}

// TestDecisionsBeginAtZero checks that all decisions that a limiter can make are exported
// with the value 0 before the first one. A counter that begins at 1 shows no rise.
func TestDecisionsBeginAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := redistest.NewBubble(t), &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
		add(t, h, still(5), hybrid.Config{Name: "auto"})
		add(t, h, still(5), hybrid.Config{Name: "strict", Mode: hybrid.ModeStrict})
		add(t, h, still(5), hybrid.Config{Name: "exact", Mode: hybrid.ModeExact})
		add(t, h, hybridlimit.SlidingLog(5, time.Hour), hybrid.Config{Name: "log"})
		got := m.Collect(t)
		for name, want := range map[string]string{
			"auto":   "allowed by credit, allowed by fallback, allowed by lease, allowed by redis, allowed by switch, denied by deny_cache, denied by fallback, denied by redis, denied by static, denied by switch",
			"strict": "allowed by fallback, allowed by lease, allowed by redis, allowed by switch, denied by deny_cache, denied by fallback, denied by redis, denied by static, denied by switch, denied by timeout",
			"exact":  "allowed by fallback, allowed by redis, allowed by switch, denied by fallback, denied by redis, denied by static, denied by switch",
			"log":    "allowed by fallback, allowed by redis, allowed by switch, denied by deny_cache, denied by fallback, denied by redis, denied by static, denied by switch",
		} {
			var have []string
			for at, n := range got {
				rest, ok := strings.CutPrefix(at, "rate_limiting.decisions{rate_limiting.policy="+name+",rate_limiting.result=")
				if !ok {
					continue
				}
				have = append(have, strings.NewReplacer(",rate_limiting.source=", " by ", "}", "").Replace(rest))
				if n != 0 {
					t.Errorf("%s is %d before the first call", at, n)
				}
			}
			slices.Sort(have)
			if said := strings.Join(have, ", "); said != want {
				t.Errorf("%s begins with\n%s, want\n%s", name, said, want)
			}
		}
	})
}

// TestNoDecisionBeginsLate checks that the series of every decision was exported before
// the first call, whatever happens.
func TestNoDecisionBeginsLate(t *testing.T) {
	t.Parallel()
	for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
		for _, limit := range []hybridlimit.Limit{hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.LeakyQueue(100, time.Second, 50), hybridlimit.SlidingLog(50, time.Second)} {
			synctest.Test(t, func(t *testing.T) {
				b, m := redistest.NewBubble(t), &metertest.Provider{}
				h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
				l := add(t, h, limit, hybrid.Config{Name: "api", Mode: mode})
				first := m.Collect(t)
				time.Sleep(2100 * time.Millisecond)
				for n := range 600 {
					ask(t, l, "k", 1)
					switch n {
					case 100:
						ask(t, l, "k", 1000)
					case 200:
						b.Kill()
					case 400:
						b.Restart()
					case 550:
						flip(t, l, hybrid.SwitchAllowAll)
					case 560:
						flip(t, l, hybrid.SwitchDenyAll)
					}
					time.Sleep(time.Duration(n%7) * time.Millisecond)
				}
				for at, n := range m.Collect(t) {
					if _, ok := first[at]; !ok && n > 0 {
						t.Errorf("%v, %v: %s was not exported at first", mode, limit, at)
					}
				}
			})
		}
	}
}

// TestExactCallsThatFail checks that exact calls without an answer of Redis count as
// failures, as syncs do. A call whose caller has left is no failure. In an earlier version
// no counter had them.
func TestExactCallsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := redistest.NewBubble(t), &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
		l := add(t, h, still(5), hybrid.Config{Name: "api", Mode: hybrid.ModeExact})
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "k", 1)
		s := h.Stats()
		if s.Failures != 0 || s.Syncs != 1 || s.SyncOps != 1 || s.SyncTime < 0 || s.SyncMean() != s.SyncTime || s.Behind {
			t.Errorf("one exact call: %+v", s)
		}
		b.Kill()
		ask(t, l, "k", 1)
		if s := h.Stats(); s.Failures == 0 || m.Collect(t)["rate_limiting.sync.failures{rate_limiting.hub=hl}"] != int64(s.Failures) {
			t.Errorf("an exact call without an answer: %+v", s)
		}
	})
	if (hybrid.HubStats{}).SyncMean() != 0 {
		t.Error("SyncMean of no syncs is not 0")
	}
}

// TestStatsOfWhatWasReturned checks the figures of units that callers gave back.
func TestStatsOfWhatWasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "k", 10)
		must(t)(l.Refund(t.Context(), "k", 4))
		if s := l.Stats(); s.Returned != 4 || s.Admitted != 6 || s.Refunded != 0 {
			t.Errorf("given back: %+v", s)
		}
		time.Sleep(time.Second)
		if s := l.Stats(); s.Returned != 4 || s.Refunded != 4 {
			t.Errorf("acknowledged: %+v", s)
		}
	})
}
