package parity_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/rls"
	"github.com/hybridlimit/hybridlimit/rls/internal/parity"
)

// The numbers of answers that must be compared. Cases with fewer are not what docs/envoy.md promises.
const (
	fewest         = 1200
	fewestTogether = 400
)

// TestParity sends each recorded request to the service, and compares the answers. Each rule is asked on its own, so that
// a denied request counts as there.
func TestParity(t *testing.T) {
	probes := 0
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			o := optionsOf(c)
			o.StrictCompat = true
			probes += compare(t, c, o, func(parity.Probe) bool { return true })
		})
	}
	if t.Logf("%d answers are equal", probes); probes < fewest {
		t.Errorf("%d answers, want at least %d", probes, fewest)
	}
}

// TestParityOfAllOrNone does the same with the options of a new user: the rules of a request are admitted together or not
// at all. The counts differ after the first request that is denied and has several descriptors, so a round ends there.
func TestParityOfAllOrNone(t *testing.T) {
	probes := 0
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			probes += compare(t, c, optionsOf(c), func(p parity.Probe) bool {
				return len(p.Request.GetDescriptors()) == 1 || strings.HasPrefix(p.Answer, "OK ") && !twice(p.Request)
			})
		})
	}
	if t.Logf("%d answers are equal", probes); probes < fewestTogether {
		t.Errorf("%d answers, want at least %d", probes, fewestTogether)
	}
}

// twice reports whether two descriptors of a request can have the same counter: they have the same keys.
func twice(req *pb.RateLimitRequest) bool {
	seen := map[string]bool{}
	for _, d := range req.GetDescriptors() {
		name := ""
		for _, e := range d.GetEntries() {
			name += "|" + e.GetKey()
		}
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return false
}

// cases reads the recorded cases.
func cases(t *testing.T) []*parity.Case {
	t.Helper()
	all, err := parity.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// optionsOf returns the options of a service for a case.
func optionsOf(c *parity.Case) rls.Options {
	o := rls.Options{
		NoDraftHeaders: true, LegacyHeaders: c.Has(parity.Headers), Metadata: c.Has(parity.Metadata),
		Shadow: c.Has(parity.Shadow), Quota: c.Has(parity.Quota),
	}
	o.Limiter.MaxWait = 5 * time.Second
	return o
}

// compare runs all rounds, each up to the first probe that cannot be compared.
func compare(t *testing.T, c *parity.Case, o rls.Options, comparable func(parity.Probe) bool) (same int) {
	t.Helper()
	var files []rls.File
	for _, f := range c.Files {
		files = append(files, rls.File{Name: f.Name, Data: []byte(f.Text)})
	}
	set, err := rls.ParseRules(files, c.Has(parity.Merge))
	if refused := err != nil; refused != c.Refused {
		t.Fatalf("refused there: %t; here: %v", c.Refused, err)
	}
	for r, round := range c.Rounds {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(11*time.Hour + 23*time.Minute + 45*time.Second)
			s := serve(t, set, o)
			for i, p := range round {
				if !comparable(p) {
					return
				}
				res, err := s.ShouldRateLimit(context.Background(), p.Request)
				if err != nil {
					t.Fatalf("round %d, probe %d: %v", r, i, err)
				}
				got, want := onPurpose(p.Request, parity.Text(res), p.Answer)
				if got != want {
					t.Fatalf("round %d, probe %d: %s\n%s, want\n%s", r, i, parity.JSON(p.Request), strings.ReplaceAll(got, " | ", "\n\t"), strings.ReplaceAll(want, " | ", "\n\t"))
				}
				same++
			}
		})
	}
	return same
}

// onPurpose takes out of two answers what differs on purpose, by docs/envoy.md: a descriptor with an addend of 0 is over
// at the limit here, and above it there. Then the code of the descriptor differs, and what follows from it.
func onPurpose(req *pb.RateLimitRequest, ours, theirs string) (_, _ string) {
	got, want := strings.Split(ours, " | "), strings.Split(theirs, " | ")
	n := len(req.GetDescriptors())
	if len(got) <= n || len(want) <= n {
		return ours, theirs
	}
	differs := false
	for i, d := range req.GetDescriptors() {
		at := i + 1
		if d.GetHitsAddend() == nil || d.GetHitsAddend().GetValue() > 0 || !strings.HasPrefix(want[at], "OK ") || !strings.Contains(want[at], " left 0 ") {
			continue
		}
		if got[at] == "OVER_LIMIT"+want[at][len("OK"):] {
			got[at], differs = want[at], true
		}
	}
	if !differs {
		return ours, theirs
	}
	if got[0] == "OVER_LIMIT" {
		got[0] = want[0]
	}
	return strings.Join(got[:n+1], " | "), strings.Join(want[:n+1], " | ")
}

// serve returns a service with rules, whose counts are unused.
func serve(t *testing.T, set *rls.Rules, o rls.Options) *rls.Service {
	t.Helper()
	hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{FleetSize: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	s, err := rls.New(hub, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRules(set); err != nil {
		t.Fatal(err)
	}
	return s
}
