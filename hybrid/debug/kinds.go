package debug

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// This file has what the handler shows of limiters of calls in flight and of leased rates. pages.go has those of rates.

// shown is a limiter of any kind.
type shown interface {
	Name() string
	list(p *page) // adds the limiter to the page
	look(ctx context.Context, key string) (any, error)
}

// redisShown is a limiter that can ask Redis about a key.
type redisShown interface {
	lookRedis(ctx context.Context, key string) (any, error)
}

// shownOf returns the limiters of a hub: those of rates first.
func shownOf(h *hybrid.Hub) (all []shown) {
	for _, l := range h.Limiters() {
		all = append(all, rate{l})
	}
	for _, l := range h.ConcurrencyLimiters() {
		all = append(all, calls{l})
	}
	for _, l := range h.RateLeaseLimiters() {
		all = append(all, leasedRate{l})
	}
	return all
}

// calls is a limiter of calls in flight.
type calls struct{ *hybrid.ConcurrencyLimiter }

// callsEntry is such a limiter in the list.
type callsEntry struct {
	Name    string           `json:"name"`
	Limit   string           `json:"limit"`
	Mode    string           `json:"mode"`
	Switch  string           `json:"switch"`
	Fleet   int64            `json:"fleet"`
	Keys    int              `json:"keys"`
	Running int64            `json:"running"`
	Held    int64            `json:"held"`
	Waiting int64            `json:"waiting"`
	Member  bool             `json:"member"`
	Allowed map[string]int64 `json:"allowed"`
	Denied  map[string]int64 `json:"denied"`
	PerOp   float64          `json:"ops_per_decision"`
}

func (l calls) list(p *page) {
	s := l.Stats()
	p.Calls = append(p.Calls, callsEntry{
		Name: l.Name(), Limit: l.Limit().String(), Mode: l.Mode().String(), Switch: s.Switch.String(), Fleet: s.Fleet, Keys: s.Keys,
		Running: s.Running, Held: s.Held, Waiting: s.Waiting, Member: s.Member,
		Allowed: bySource(s.Allowed), Denied: bySource(s.Denied), PerOp: s.OpsPerDecision(),
	})
}

func (e callsEntry) text(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s, mode %s, switch %s\n", e.Name, e.Limit, e.Mode, e.Switch)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  fleet\t%d processes%s\n", e.Fleet, map[bool]string{false: "; this one may not use its permits"}[e.Member])
	fmt.Fprintf(t, "  keys\t%d in memory\n", e.Keys)
	fmt.Fprintf(t, "  permits\t%d used, %d held, %d waited for\n", e.Running, e.Held, e.Waiting)
	decided(t, e.Allowed, e.Denied)
	fmt.Fprintf(t, "  Redis\t%.4g ops per decision\n", e.PerOp)
	t.Flush()
}

func (l calls) look(ctx context.Context, key string) (any, error) {
	i, err := l.Inspect(ctx, key)
	return flying(i), err
}

// flying is the calls in flight of a key.
type flying hybrid.ConcurrencyInspection

func (i flying) text(w io.Writer) {
	line, end := lines(w, i.Sentence)
	defer end()
	line("limiter", "%s: %v, mode %s", i.Policy, i.Limit, i.Mode)
	keyLines(line, i.Key, i.Digest, i.Slot, i.Known, i.At)
	line("permits", "%d used, %d held, %d of them usable; %d are waited for", i.Running, i.Held, i.Usable, i.Waiting)
	line("Redis view", "%d permits left%s", i.Free, map[bool]string{true: "; it learns the running calls"}[i.Learns])
	line("share", "%d permits, without Redis", i.Share)
	if !i.Until.IsZero() {
		line("member until", "%s", i.Until.UTC().Format(time.RFC3339Nano))
	}
	line("fleet", "%d processes", i.Fleet)
	line("switch", "%s", switchSaid(i.Switch, i.SwitchOwn, i.Shadow))
	line("breaker", "%s", i.Breaker)
}

// leasedRate is a limiter of leased rates.
type leasedRate struct{ *hybrid.RateLeaseLimiter }

// rateEntry is such a limiter in the list.
type rateEntry struct {
	Name    string           `json:"name"`
	Limit   string           `json:"limit"`
	Switch  string           `json:"switch"`
	Fleet   int64            `json:"fleet"`
	Keys    int              `json:"keys"`
	Evicted uint64           `json:"evicted"`
	Rate    float64          `json:"rate"`
	Held    float64          `json:"held"`
	Owed    int64            `json:"owed"`
	Dropped int64            `json:"dropped"`
	Worst   int64            `json:"overshoot"`
	Allowed map[string]int64 `json:"allowed"`
	Denied  map[string]int64 `json:"denied"`
	PerOp   float64          `json:"ops_per_decision"`
}

func (l leasedRate) list(p *page) {
	s := l.Stats()
	p.Rates = append(p.Rates, rateEntry{
		Name: l.Name(), Limit: l.Limit().String(), Switch: s.Switch.String(), Fleet: s.Fleet, Keys: s.Keys, Evicted: s.Evicted,
		Rate: s.Rate, Held: s.Held, Owed: s.Owed, Dropped: s.Dropped, Worst: s.Overshoot,
		Allowed: bySource(s.Allowed), Denied: bySource(s.Denied), PerOp: s.OpsPerDecision(),
	})
}

func (e rateEntry) text(w io.Writer) {
	fmt.Fprintf(w, "\n%s: leased rates, %s, switch %s\n", e.Name, e.Limit, e.Switch)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  fleet\t%d processes\n", e.Fleet)
	fmt.Fprintf(t, "  keys\t%d in memory, %d evicted\n", e.Keys, e.Evicted)
	fmt.Fprintf(t, "  rate\t%.4g units a second are leased, %.1f units in hand\n", e.Rate, e.Held)
	fmt.Fprintf(t, "  units\t%d owed, %d dropped, largest debt %d\n", e.Owed, e.Dropped, e.Worst)
	decided(t, e.Allowed, e.Denied)
	fmt.Fprintf(t, "  Redis\t%.4g ops per decision\n", e.PerOp)
	t.Flush()
}

func (l leasedRate) look(ctx context.Context, key string) (any, error) {
	i, err := l.Inspect(ctx, key)
	return leasing(i), err
}

// leasing is the leased rate of a key.
type leasing hybrid.RateLeaseInspection

func (i leasing) text(w io.Writer) {
	line, end := lines(w, i.Sentence)
	defer end()
	line("limiter", "%s: %v, leased rates", i.Policy, i.Limit)
	keyLines(line, i.Key, i.Digest, i.Slot, i.Known, i.At)
	line("leased", "%.4g units a second, %.1f units in hand", i.Rate, i.Held)
	line("owed", "%d units, by the fallback", i.Owed)
	line("Redis view", "%.1f units left", i.Left)
	line("fleet", "%d processes", i.Fleet)
	line("switch", "%s", switchSaid(i.Switch, i.SwitchOwn, i.Shadow))
	line("breaker", "%s", i.Breaker)
}
