package otellimit_test

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/otellimit"
)

var errNoMore = errors.New("no more instruments")

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func recorder(t *testing.T, cfg otellimit.Config) *otellimit.Recorder {
	t.Helper()
	r := must[*otellimit.Recorder](t)(otellimit.NewRecorder(cfg))
	t.Cleanup(func() { r.Close() })
	return r
}

func newLocal(t *testing.T, name string, n int64) *local.Limiter {
	t.Helper()
	return must[*local.Limiter](t)(local.New(hybridlimit.TokenBucket(1, time.Hour, n), local.Config{Name: name, MaxKeys: 2}))
}

func TestDecisionsAreCounted(t *testing.T) {
	p := &metertest.Provider{}
	r := recorder(t, otellimit.Config{MeterProvider: p, Durations: true})
	api := must[hybridlimit.Limiter](t)(r.Wrap("api", newLocal(t, "api", 2)))
	ctx := t.Context()
	for range 5 {
		must[hybridlimit.Result](t)(api.Allow(ctx, "alice@example.com"))
	}
	must[hybridlimit.Result](t)(api.AllowN(ctx, "bob", 3))
	must[hybridlimit.Result](t)(api.Allow(ctx, "carol"))
	must[hybridlimit.Result](t)(api.Allow(ctx, "dave")) // evicts a key
	if _, err := api.Allow(ctx, ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
		t.Error(err)
	}
	shadow := must[hybridlimit.Limiter](t)(r.Wrap("shadow", limittest.Play(hybridlimit.Result{Allowed: true, Shadowed: true, Source: hybridlimit.SourceRedis})))
	must[hybridlimit.Result](t)(shadow.Allow(ctx, "k"))
	got := p.Collect(t)
	const of = "rate_limiting.decisions{rate_limiting.policy="
	for at, want := range map[string]int64{
		of + "api,rate_limiting.result=allowed,rate_limiting.source=local}":    4,
		of + "api,rate_limiting.result=denied,rate_limiting.source=local}":     3,
		of + "api,rate_limiting.result=denied,rate_limiting.source=static}":    1,
		of + "api,rate_limiting.result=allowed,rate_limiting.source=static}":   0, // a result without a decision is exported as 0
		of + "shadow,rate_limiting.result=denied,rate_limiting.source=redis}":  1,
		of + "shadow,rate_limiting.result=allowed,rate_limiting.source=redis}": 0,
		"rate_limiting.errors{rate_limiting.policy=api}":                       1,
		"rate_limiting.errors{rate_limiting.policy=shadow}":                    0,
		"rate_limiting.keys{rate_limiting.policy=api}":                         2,
		"rate_limiting.evictions{rate_limiting.policy=api}":                    1,
	} {
		if have, ok := got[at]; have != want || !ok {
			t.Errorf("%s is %d (%v), want %d", at, have, ok, want)
		}
		delete(got, at)
	}
	if len(got) > 0 {
		t.Errorf("unexpected metrics: %v", got)
	}
	if n := len(p.Take("rate_limiting.decision.duration{rate_limiting.policy=api}")); n != 9 {
		t.Errorf("%d durations of 9 calls: %v", n, p.Recorded())
	}
	for range 2 { // it is idempotent
		if err := r.Close(); err != nil || p.Registered() {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := r.Wrap("late", newLocal(t, "late", 1)); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A global limiter without Redis: the fallback decides, and the call returns an
// error.
func TestGlobalWithoutRedis(t *testing.T) {
	p := &metertest.Provider{}
	r := recorder(t, otellimit.Config{MeterProvider: p})
	g := must[*global.Limiter](t)(global.New(redistest.Client(t, "127.0.0.1:1"), hybridlimit.PerSecond(1), global.Config{Name: "g", FailOpen: true, Timeout: 50 * time.Millisecond}))
	defer g.Close()
	l := must[hybridlimit.Limiter](t)(r.Wrap("g", g))
	if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
		t.Fatal(err)
	}
	got := p.Collect(t)
	if got["rate_limiting.decisions{rate_limiting.policy=g,rate_limiting.result=allowed,rate_limiting.source=fallback}"] != 1 || got["rate_limiting.errors{rate_limiting.policy=g}"] != 1 {
		t.Errorf("%v", got)
	}
}

// Wrapped limiters can be asked together with each other and with others of their
// kind, and describe their policies.
func TestJointCalls(t *testing.T) {
	p := &metertest.Provider{}
	r := recorder(t, otellimit.Config{MeterProvider: p, Durations: true})
	wide, narrow, bare := newLocal(t, "wide", 100), newLocal(t, "narrow", 1), newLocal(t, "bare", 50)
	a, b := must[hybridlimit.Limiter](t)(r.Wrap("wide", wide)), must[hybridlimit.Limiter](t)(r.Wrap("narrow", narrow))
	joint, ok := a.(adapter.Joint)
	if !ok || !joint.Joins(b) || !joint.Joins(bare) || joint.Joins(limittest.AllowAll()) {
		t.Fatal("Joins must be true for the other wrapped limiter and the local one, and false for limittest's")
	}
	if d, ok := a.(adapter.Describer); !ok || d.Policy("k") != wide.Policy("k") {
		t.Error("the wrapped limiter has not the Policy of its limiter")
	}
	asks := []hybridlimit.Ask{{Limiter: a, Key: "k", N: 1}, {Limiter: b, Key: "k", N: 1}, {Limiter: bare, Key: "k", N: 1}}
	for i := range 3 {
		if res := must[hybridlimit.Result](t)(joint.AllowJoint(t.Context(), asks)); res.Allowed != (i == 0) {
			t.Errorf("call %d: %+v", i, res)
		}
		if left, denied := asks[0].Result, asks[1].Result; i == 0 && left.Remaining != 99 || i > 0 && (left.Policy != "" || denied.Policy != "narrow") {
			t.Errorf("call %d: %+v", i, asks)
		}
	}
	if a.(adapter.Describer).Name() != "wide" {
		t.Error("the wrapped limiter has not the Name of its limiter")
	}
	got := p.Collect(t)
	const of, local = "rate_limiting.decisions{rate_limiting.policy=", ",rate_limiting.source=local}"
	for at, want := range map[string]int64{
		of + "wide,rate_limiting.result=allowed" + local: 1, of + "wide,rate_limiting.result=denied" + local: 0,
		of + "narrow,rate_limiting.result=allowed" + local: 1, of + "narrow,rate_limiting.result=denied" + local: 2,
	} {
		if got[at] != want {
			t.Errorf("%s is %d, want %d", at, got[at], want)
		}
	}
	for name, want := range map[string]int{"wide": 1, "narrow": 3} { // of the calls that count for it
		if n := len(p.Take("rate_limiting.decision.duration{rate_limiting.policy=" + name + "}")); n != want {
			t.Errorf("%d durations of %s, want %d", n, name, want)
		}
	}
}

// A wrapped limiter is asked together with one that is not wrapped, in both orders.
func TestBesideABareLimiter(t *testing.T) {
	p := &metertest.Provider{}
	r := recorder(t, otellimit.Config{MeterProvider: p})
	wrapped := must[hybridlimit.Limiter](t)(r.Wrap("wrapped", newLocal(t, "wrapped", 5)))
	bare := newLocal(t, "bare", 5)
	if !wrapped.(adapter.Joint).Joins(bare) || !wrapped.(adapter.Joint).Joins(wrapped) {
		t.Error("a wrapped limiter does not join a bare one, or itself")
	}
	for _, asks := range [][]hybridlimit.Ask{
		{{Limiter: bare, Key: "k", N: 1}, {Limiter: wrapped, Key: "k", N: 1}},
		{{Limiter: wrapped, Key: "k", N: 1}, {Limiter: bare, Key: "k", N: 1}},
	} {
		if res, err := hybridlimit.AllowAll(t.Context(), asks...); err != nil || !res.Allowed || !asks[0].Result.Allowed || !asks[1].Result.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if n := p.Collect(t)["rate_limiting.decisions{rate_limiting.policy=wrapped,rate_limiting.result=allowed,rate_limiting.source=local}"]; n != 2 {
		t.Errorf("%v decisions are counted, want 2", n)
	}
}

// Wrapped limiters keep the interfaces of their limiter.
func TestInterfacesAreKept(t *testing.T) {
	type onlyJoint struct{ adapter.Joint }
	type onlyDescriber struct{ adapter.Describer }
	type neither struct{ hybridlimit.Limiter }
	l := newLocal(t, "l", 1)
	r := recorder(t, otellimit.Config{MeterProvider: &metertest.Provider{}})
	for name, of := range map[string]hybridlimit.Limiter{"both": l, "joint": onlyJoint{l}, "describer": onlyDescriber{l}, "neither": neither{l}} {
		w := must[hybridlimit.Limiter](t)(r.Wrap(name, of))
		_, j := w.(adapter.Joint)
		_, d := w.(adapter.Describer)
		_, wantJ := of.(adapter.Joint)
		_, wantD := of.(adapter.Describer)
		if u, ok := w.(interface{ Unwrap() hybridlimit.Limiter }); !ok || u.Unwrap() != of {
			t.Errorf("%s: Unwrap does not return the limiter", name)
		}
		if j != wantJ || d != wantD {
			t.Errorf("%s: joint %v, describer %v", name, j, d)
		}
	}
}

// Without a provider, Wrap returns the limiter itself.
func TestNoProvider(t *testing.T) {
	l := newLocal(t, "l", 1)
	r := recorder(t, otellimit.Config{Durations: true})
	if w := must[hybridlimit.Limiter](t)(r.Wrap("l", l)); w != hybridlimit.Limiter(l) {
		t.Errorf("wrapped: %T", w)
	}
}

// TestPermitsAreCounted wraps limiters of calls in flight.
func TestPermitsAreCounted(t *testing.T) {
	p := &metertest.Provider{}
	r := recorder(t, otellimit.Config{MeterProvider: p, Durations: true})
	calls, err := local.NewConcurrency(hybridlimit.Concurrent(5), local.ConcurrencyConfig{Name: "running"})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := must[hybridlimit.Limiter](t)(r.Wrap("calls", calls)).(hybridlimit.Acquirer)
	if d, ok := wrapped.(adapter.Describer); !ok || d.Name() != "running" || d.Policy("k").Limit != hybridlimit.Concurrent(5) {
		t.Errorf("a Describer: %v", ok)
	}
	bare := must[hybridlimit.Limiter](t)(r.Wrap("bare", struct{ hybridlimit.Acquirer }{calls}))
	if _, ok := bare.(adapter.Describer); ok {
		t.Error("a limiter that is no Describer has become one")
	}
	if _, err := wrapped.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnsupported) {
		t.Errorf("Allow: %v", err)
	}
	running := func() int64 { return int64(p.Collect(t)[`rate_limiting.permits.running{rate_limiting.policy=calls}`]) }
	permit, res, err := wrapped.AcquireN(t.Context(), "k", 3)
	if err != nil || !res.Allowed || running() != 3 || calls.Running("k") != 3 {
		t.Errorf("%+v, %v, %d running", res, err, running())
	}
	if _, res, err := wrapped.AcquireN(t.Context(), "k", 3); err != nil || res.Allowed || running() != 3 {
		t.Errorf("a denial: %+v, %v, %d running", res, err, running())
	}
	again := permit
	permit.Release()
	again.Release()
	if running() != 0 || calls.Running("k") != 0 {
		t.Errorf("%d running after the release", running())
	}
	one, res, err := wrapped.Acquire(t.Context(), "k")
	if err != nil || !res.Allowed || running() != 1 {
		t.Errorf("%+v, %v, %d running", res, err, running())
	}
	one.Release()
	if _, _, err := wrapped.Acquire(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) || running() != 0 {
		t.Errorf("an empty key: %v, %d running", err, running())
	}
}

func TestBadInput(t *testing.T) {
	r := recorder(t, otellimit.Config{MeterProvider: &metertest.Provider{}})
	must[hybridlimit.Limiter](t)(r.Wrap("api", newLocal(t, "api", 1)))
	for want, wrap := range map[string]func() (hybridlimit.Limiter, error){
		`otellimit: name ("a b") must match [A-Za-z0-9_.-]{1,128}`:             func() (hybridlimit.Limiter, error) { return r.Wrap("a b", newLocal(t, "x", 1)) },
		`otellimit: name ("api") is taken by another limiter of this Recorder`: func() (hybridlimit.Limiter, error) { return r.Wrap("api", newLocal(t, "x", 1)) },
		`is required`: func() (hybridlimit.Limiter, error) { return r.Wrap("x", nil) },
	} {
		if _, err := wrap(); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	all := &metertest.Provider{}
	recorder(t, otellimit.Config{MeterProvider: all, Durations: true})
	for name := range all.Made {
		p := &metertest.Provider{Fail: errNoMore, FailAt: name}
		if _, err := otellimit.NewRecorder(otellimit.Config{MeterProvider: p, Durations: true}); !errors.Is(err, errNoMore) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	r := recorder(t, otellimit.Config{MeterProvider: noop.NewMeterProvider(), Durations: true})
	l := must[hybridlimit.Limiter](t)(r.Wrap("l", newLocal(t, "l", 1)))
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = l.Allow(ctx, "k") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestInstrumentsAreDocumented checks that docs/metrics.md lists exactly the instruments
// of this package.
func TestInstrumentsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	before, section, ok := strings.Cut(string(text), "\n## Limiters without a hub\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, hub, found := strings.Cut(before, "\n## Of a limiter\n")
	if hub, _, _ = strings.Cut(hub, "\n## "); !ok || !found {
		t.Fatal("no section")
	}
	rows, attributes := map[string]string{}, map[string]string{}
	read := func(line, of string) { // a row of a section
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		attribute := regexp.MustCompile("Attribute(?: of the others)?: `([^`]+)`").FindStringSubmatch(of)
		if len(cells) != 4 || attribute == nil {
			t.Fatalf("%d cells in %q, attribute %q", len(cells), line, attribute)
		}
		plain := func(i int) string { return strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "") }
		rows[plain(0)] = strings.Replace(plain(1), ", ", " | ", 1) + " | " + plain(2)
		attributes[plain(0)] = attribute[1]
		if more := regexp.MustCompile("`" + plain(0) + "` also has (`[^`]+`(?:, `[^`]+`)*)").FindStringSubmatch(of); more != nil {
			attributes[plain(0)] += ", " + strings.ReplaceAll(more[1], "`", "")
		}
	}
	_, same, _ := strings.Cut(section, "As for a hub: ") // those with a row above
	same, _, _ = strings.Cut(same, ". ")
	for line := range strings.Lines(hub) {
		if name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | "); strings.HasPrefix(line, "| `") && slices.Contains(strings.Split(same, ", "), name) {
			read(line, hub)
		}
	}
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			read(line, section)
		}
	}
	p := &metertest.Provider{}
	r := recorder(t, otellimit.Config{MeterProvider: p, Durations: true})
	l := must[hybridlimit.Limiter](t)(r.Wrap("api", newLocal(t, "api", 1)))
	must[hybridlimit.Result](t)(l.Allow(t.Context(), "k"))
	calls, err := local.NewConcurrency(hybridlimit.Concurrent(5), local.ConcurrencyConfig{})
	if err != nil {
		t.Fatal(err)
	}
	must[hybridlimit.Limiter](t)(r.Wrap("calls", calls))
	seen := map[string]string{}
	for _, at := range slices.AppendSeq(p.Recorded(), maps.Keys(p.Collect(t))) {
		name, set, _ := strings.Cut(strings.TrimSuffix(at, "}"), "{")
		var keys []string
		for kv := range strings.SplitSeq(set, ",") {
			key, _, _ := strings.Cut(kv, "=")
			keys = append(keys, key)
		}
		seen[name] = strings.Join(keys, ", ")
	}
	if !maps.Equal(attributes, seen) {
		t.Errorf("attributes documented:\n%s\nobserved:\n%s", list(attributes), list(seen))
	}
	if !maps.Equal(rows, p.Described()) {
		t.Errorf("documented:\n%s\nmade:\n%s", list(rows), list(p.Described()))
	}
}

func list(m map[string]string) string {
	var lines []string
	for k, v := range m {
		lines = append(lines, k+": "+v)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
