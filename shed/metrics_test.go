package shed_test

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/shed"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &metertest.Provider{}
		s := shedder(t, shed.Config{
			Classes: []string{"critical", "rest"}, Healthy: time.Second, MaxInFlight: 1, Name: "worker",
			MeterProvider: p, Logger: slog.New(slog.DiscardHandler),
		})
		defer acquire(t, s, "critical").Release()
		s.Acquire(t.Context(), "rest")
		got := p.Collect(t)
		for at, want := range map[string]int64{
			"rate_limiting.decisions{rate_limiting.class=critical,rate_limiting.policy=worker,rate_limiting.result=allowed,rate_limiting.source=shed}": 1,
			"rate_limiting.decisions{rate_limiting.class=critical,rate_limiting.policy=worker,rate_limiting.result=denied,rate_limiting.source=shed}":  0,
			"rate_limiting.decisions{rate_limiting.class=rest,rate_limiting.policy=worker,rate_limiting.result=allowed,rate_limiting.source=shed}":     0,
			"rate_limiting.decisions{rate_limiting.class=rest,rate_limiting.policy=worker,rate_limiting.result=denied,rate_limiting.source=shed}":      1,
			"rate_limiting.shed.no_room{rate_limiting.class=critical,rate_limiting.policy=worker}":                                                     0,
			"rate_limiting.shed.no_room{rate_limiting.class=rest,rate_limiting.policy=worker}":                                                         1,
			"rate_limiting.shed.limit{rate_limiting.policy=worker}":                                                                                    1,
			"rate_limiting.shed.in_flight{rate_limiting.policy=worker}":                                                                                1,
			"rate_limiting.shed.waiting{rate_limiting.policy=worker}":                                                                                  0,
		} {
			if have, ok := got[at]; have != want || !ok {
				t.Errorf("%s is %d (%v), want %d", at, have, ok, want)
			}
			delete(got, at)
		}
		if len(got) > 1 { // the share is left
			t.Errorf("unexpected: %v", got)
		}
		if err := s.Close(); err != nil || p.Registered() {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestAProviderThatFails(t *testing.T) {
	bad := errors.New("no more instruments")
	p := &metertest.Provider{Fail: bad, FailAt: "rate_limiting.shed.share"}
	if _, err := shed.New(shed.Config{Classes: classes, Healthy: 1, MeterProvider: p}); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}

// TestInstrumentsAreDocumented checks that docs/metrics.md lists exactly the
// instruments of this package in its section.
func TestInstrumentsAreDocumented(t *testing.T) {
	p := &metertest.Provider{}
	shedder(t, shed.Config{Classes: classes, Healthy: 1, MeterProvider: p})
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## The shedder\n")
	if !found {
		t.Fatal("docs/metrics.md has no section for the shedder")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`rate_limiting.") {
			continue
		}
		trim := func(i int) string { return strings.Trim(cells[i], " `") }
		kind, unit, _ := strings.Cut(trim(2), ", `")
		listed[trim(1)] = kind + " | " + unit + " | " + trim(3)
	}
	if made := p.Described(); !maps.Equal(listed, made) {
		t.Errorf("listed %v\nmade   %v", slices.Sorted(maps.Keys(listed)), made)
	}
}
