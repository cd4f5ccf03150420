package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		m := &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
		api := add(t, h, still(5), hybrid.Config{Name: "api"})
		hot := add(t, h, hybridlimit.TokenBucket(1000, time.Second, 2000), hybrid.Config{Name: "hot"})
		time.Sleep(2100 * time.Millisecond)

		if want := []string{"github.com/hybridlimit/hybridlimit/hybrid"}; !slices.Equal(m.Scopes, want) {
			t.Errorf("scopes %q, want %q", m.Scopes, want)
		}
		for range 7 {
			ask(t, api, "alice@example.com", 1)
		}
		ask(t, api, "k", 6)
		ask(t, hot, "k", 1000)
		for range 500 {
			ask(t, hot, "k", 1)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait() // a reply in flight must not be counted between the two readings
		got := m.Collect(t)
		want := func(at string, v int64) {
			t.Helper()
			if have, ok := got[at]; !ok || have != v {
				t.Errorf("%s is %d (%v), want %d", at, have, ok, v)
			}
		}
		const policy = "rate_limiting.policy="
		decisions := func(l *hybrid.Limiter, name string) {
			s := l.Stats()
			for result, counts := range map[string]map[hybridlimit.Source]int64{"allowed": s.Allowed, "denied": s.Denied} {
				for src, n := range counts {
					want(fmt.Sprintf("rate_limiting.decisions{%s%s,rate_limiting.result=%s,rate_limiting.source=%v}", policy, name, result, src), n)
				}
			}
			for fate, n := range map[string]int64{
				"admitted": s.Admitted, "paid": s.Paid, "granted": s.Granted, "expired": s.Expired,
				"lost": s.Lost, "uncertain": s.Uncertain, "dropped": s.Dropped, "forgiven": s.Forgiven, "refunded": s.Refunded, "returned": 0,
			} {
				want(fmt.Sprintf("rate_limiting.units{%s%s,rate_limiting.unit.fate=%s}", policy, name, fate), n)
			}
			want("rate_limiting.fleet.size{"+policy+name+"}", 1)
			want("rate_limiting.credit{"+policy+name+"}", s.Credit)
			want("rate_limiting.sync.ops{"+policy+name+"}", s.Ops)
			want("rate_limiting.keys{"+policy+name+"}", int64(s.Keys))
			want("rate_limiting.sync.resyncs{"+policy+name+"}", s.Resynced)
			want("rate_limiting.owed{"+policy+name+"}", s.Owed)
			want("rate_limiting.held{"+policy+name+"}", s.Held)
			want("rate_limiting.evictions{"+policy+name+"}", int64(s.Evicted))
			want("rate_limiting.refusals{"+policy+name+"}", int64(s.Refused))
			want("rate_limiting.overflow{"+policy+name+"}", s.Overflow)
		}
		decisions(api, "api")
		decisions(hot, "hot")
		want("rate_limiting.decisions{rate_limiting.policy=api,rate_limiting.result=denied,rate_limiting.source=static}", 1)
		s := h.Stats()
		want("rate_limiting.sync.messages{rate_limiting.hub=hl}", int64(s.Messages))
		if sent := api.Stats().Ops + hot.Stats().Ops; sent != int64(s.Ops) { // nothing was sent twice
			t.Errorf("the limiters count %d ops, their hub %d", sent, s.Ops)
		}
		if api.Stats().Credit != 0 || hot.Stats().Credit == 0 {
			t.Errorf("credit %d of a burst of 5, %d of 2000", api.Stats().Credit, hot.Stats().Credit)
		}
		want("rate_limiting.sync.failures{rate_limiting.hub=hl}", 0)
		want("rate_limiting.breaker.state{rate_limiting.hub=hl}", 0)
		want("rate_limiting.sync.behind{rate_limiting.hub=hl}", 0)
		want("rate_limiting.sync.gaps{rate_limiting.hub=hl}", int64(s.Gaps))
		want("rate_limiting.sync.refused{rate_limiting.hub=hl}", int64(s.Refused))
		if took, sizes := m.Take("rate_limiting.sync.duration{rate_limiting.hub=hl}"), m.Take("rate_limiting.sync.batch.size{rate_limiting.hub=hl}"); len(took) == 0 || len(took) != len(sizes) || sizes[0] < 1 || took[0] < 0 {
			t.Errorf("batches took %v, of %v keys", took, sizes)
		}
		for at := range got {
			if strings.Contains(at, "alice") || strings.Contains(at, "AGAIN") {
				t.Errorf("observed %s: an attribute has a key, or the series is there twice", at)
			}
		}

		b.Kill()
		for range 10 {
			ask(t, api, "k2", 1)
			time.Sleep(300 * time.Millisecond)
		}
		got = m.Collect(t)
		if got["rate_limiting.breaker.state{rate_limiting.hub=hl}"] == 0 || got["rate_limiting.sync.failures{rate_limiting.hub=hl}"] == 0 {
			t.Errorf("with Redis dead: %v", got)
		}
		api.Close()
		for at := range m.Collect(t) {
			if strings.Contains(at, "=api") {
				t.Errorf("%s is still observed after Close", at)
			}
		}
		h.Close()
		if m.Registered() || m.Removed != 1 {
			t.Errorf("unregistered %d times by Close", m.Removed)
		}
		h.Close()
	})
}

// TestCountersDoNotFall checks that units given back have their own counters and do not
// lower the counter of admitted units. A reader takes a falling counter for a restart of
// the program, and then its rate is wrong.
func TestCountersDoNotFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := redistest.NewBubble(t), &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
		l := add(t, h, still(100), hybrid.Config{Name: "api"})
		x := add(t, h, still(100), hybrid.Config{Name: "exact", Mode: hybrid.ModeExact})
		time.Sleep(2100 * time.Millisecond)
		was := map[string]int64{}
		look := func() map[string]int64 {
			got := m.Collect(t)
			for at, v := range got {
				name, _, _ := strings.Cut(at, "{")
				if m.Made[name].Kind == "counter" && v < was[at] {
					t.Errorf("%s fell from %d to %d", at, was[at], v)
				}
			}
			was = got
			return got
		}
		for _, limiter := range []*hybrid.Limiter{l, x} {
			ask(t, limiter, "k", 10)
			look()
			must(t)(limiter.Refund(t.Context(), "k", 4))
			look()
			time.Sleep(time.Second)
		}
		got := look()
		for _, name := range []string{"api", "exact"} {
			for fate, want := range map[string]int64{"admitted": 10, "returned": 4, "refunded": 4} {
				if n := got["rate_limiting.units{rate_limiting.policy="+name+",rate_limiting.unit.fate="+fate+"}"]; n != want {
					t.Errorf("%s: %s %d, want %d", name, fate, n, want)
				}
			}
		}
		if s := l.Stats(); s.Admitted != 6 || x.Stats().Admitted != 6 {
			t.Errorf("admitted %d and %d, want 6", s.Admitted, x.Stats().Admitted)
		}
		balance(t, l.Stats())
	})
}

// TestOwedAndHeld checks that the gauges of owed and held units equal those of Stats,
// while keys rest and while they are in use.
func TestOwedAndHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := redistest.NewBubble(t), &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
		l := add(t, h, hybridlimit.TokenBucket(1000, time.Second, 2000), hybrid.Config{Name: "hot"})
		time.Sleep(2100 * time.Millisecond)
		var owed, held bool
		for i := range 400 {
			ask(t, l, fmt.Sprint("k", i%3), 1)
			time.Sleep(3 * time.Millisecond)
			if i == 300 {
				b.Kill() // the fallback owes too
			}
			got, s := m.Collect(t), l.Stats()
			owed, held = owed || s.Owed > 0, held || s.Held > 0
			if o, h := got["rate_limiting.owed{rate_limiting.policy=hot}"], got["rate_limiting.held{rate_limiting.policy=hot}"]; o != s.Owed || h != s.Held {
				t.Fatalf("call %d: owed %d, held %d; Stats say %d and %d", i, o, h, s.Owed, s.Held)
			}
		}
		if !owed || !held {
			t.Errorf("any units owed: %v, held: %v; without both, nothing was compared", owed, held)
		}
	})
}

func TestMeterProviderThatFails(t *testing.T) {
	cause := errors.New("no instruments left")
	all := &metertest.Provider{}
	newHub(t, nobody(t), hybrid.HubConfig{MeterProvider: all})
	for name := range all.Made {
		_, err := hybrid.NewHub(nobody(t), hybrid.HubConfig{MeterProvider: &metertest.Provider{Fail: cause, FailAt: name}})
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "HubConfig.MeterProvider") {
			t.Errorf("NewHub without %s: %v", name, err)
		}
	}
}

// TestDecisionsDoNotAllocate checks that a decision allocates nothing, without a provider
// and with one. Nothing is recorded until a reader collects or a key is synced.
func TestDecisionsDoNotAllocate(t *testing.T) {
	srv := redistest.New(t)
	var ls []*hybrid.Limiter
	for _, hub := range []hybrid.HubConfig{{}, {MeterProvider: &metertest.Provider{}}} {
		cfg := patient(hybrid.Config{Mode: hybrid.ModeDeferred, SyncEvery: 1 << 20, Hub: hub})
		ls = append(ls, newLimiter(t, srv.Client(t), hybridlimit.TokenBucket(10_000_000, time.Second, 20_000_000), cfg))
	}
	ready(t, ls...)
	for i, l := range ls {
		redistest.Eventually(t, 10*time.Second, "credit", func() bool { return l.Stats().Credit > 0 })
		ctx := context.Background()
		redistest.Eventually(t, 10*time.Second, fmt.Sprintf("limiter %d decides 1000 times without allocation", i), func() bool {
			return testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "k") }) < 1
		})
	}
}
