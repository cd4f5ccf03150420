package debug

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// page is the list of limiters.
type page struct {
	Breaker  string  `json:"breaker"` // the worst state of the hub's breakers
	Messages uint64  `json:"messages"`
	Ops      uint64  `json:"ops"`
	Failures uint64  `json:"failures"`
	Behind   bool    `json:"behind"`            // syncs that are not urgent wait for longer than SyncInterval
	SyncMean float64 `json:"sync_mean_seconds"` // mean duration of a sync since the start
	BatchOps float64 `json:"batch_mean_ops"`
	Limiters []entry `json:"limiters"` // of rates

	Calls []callsEntry `json:"concurrency_limiters,omitempty"`
	Rates []rateEntry  `json:"rate_lease_limiters,omitempty"`
}

// entry is one limiter in the list.
type entry struct {
	Name     string           `json:"name"`
	Limit    string           `json:"limit"` // for keys without a limit of their own
	Mode     string           `json:"mode"`
	Switch   string           `json:"switch"`
	Fleet    int64            `json:"fleet"`
	Credit   int64            `json:"credit"`
	Keys     int              `json:"keys"`
	Owed     int64            `json:"owed"`
	Held     int64            `json:"held"`
	Evicted  uint64           `json:"evicted"`
	Dropped  int64            `json:"dropped"`
	Returned int64            `json:"returned"`
	Worst    int64            `json:"overshoot"`
	Allowed  map[string]int64 `json:"allowed"` // decisions by source
	Denied   map[string]int64 `json:"denied"`
	PerOp    float64          `json:"ops_per_decision"`
	Resynced int64            `json:"resynced"`
}

// listing returns the page. Its cost grows with the keys in memory: it calls Stats of each limiter.
func listing(h *hybrid.Hub, limiters []shown) page {
	s := h.Stats()
	p := page{Breaker: s.Breaker.String(), Messages: s.Messages, Ops: s.Ops, Failures: s.Failures, Behind: s.Behind, SyncMean: s.SyncMean().Seconds(), Limiters: []entry{}}
	if s.Syncs > 0 {
		p.BatchOps = float64(s.SyncOps) / float64(s.Syncs)
	}
	for _, l := range limiters {
		l.list(&p)
	}
	return p
}

// rate is a limiter of rates.
type rate struct{ *hybrid.Limiter }

func (l rate) list(p *page) {
	s := l.Stats()
	p.Limiters = append(p.Limiters, entry{
		Name: l.Name(), Limit: l.Limit().String(), Mode: l.Mode().String(), Switch: s.Switch.String(), Fleet: s.Fleet, Credit: s.Credit,
		Keys: s.Keys, Owed: s.Owed, Held: s.Held, Evicted: s.Evicted, Dropped: s.Dropped, Returned: s.Returned, Worst: s.Overshoot,
		Allowed: bySource(s.Allowed), Denied: bySource(s.Denied), PerOp: s.OpsPerDecision(), Resynced: s.Resynced,
	})
}

func (l rate) look(ctx context.Context, key string) (any, error) {
	i, err := l.Inspect(ctx, key)
	return inspected(i), err
}

func (l rate) lookRedis(ctx context.Context, key string) (any, error) {
	i, err := l.InspectRedis(ctx, key)
	return inspected(i), err
}

// bySource replaces sources by their names.
func bySource(of map[hybridlimit.Source]int64) map[string]int64 {
	out := map[string]int64{}
	for s, n := range of {
		out[s.String()] = n
	}
	return out
}

func (p page) text(w io.Writer) {
	fmt.Fprintf(w, "breaker %s, %d messages with %d ops to Redis, %d failed\n", p.Breaker, p.Messages, p.Ops, p.Failures)
	fmt.Fprintf(w, "mean sync: %v, %.3g keys%s\n", time.Duration(p.SyncMean*1e9).Round(time.Microsecond), p.BatchOps, map[bool]string{true: "; syncs are behind"}[p.Behind])
	for _, e := range p.Limiters {
		fmt.Fprintf(w, "\n%s: %s, mode %s, switch %s\n", e.Name, e.Limit, e.Mode, e.Switch)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "  fleet\t%d processes, credit %d\n", e.Fleet, e.Credit)
		fmt.Fprintf(t, "  keys\t%d in memory, %d evicted\n", e.Keys, e.Evicted)
		fmt.Fprintf(t, "  units\t%d owed, %d leased, %d dropped, %d refunded, largest debt %d\n", e.Owed, e.Held, e.Dropped, e.Returned, e.Worst)
		decided(t, e.Allowed, e.Denied)
		fmt.Fprintf(t, "  Redis\t%.4g ops per decision, %d keys resynced\n", e.PerOp, e.Resynced)
		t.Flush()
	}
	for _, e := range p.Calls {
		e.text(w)
	}
	for _, e := range p.Rates {
		e.text(w)
	}
}

// decided writes the lines about decisions.
func decided(w io.Writer, allowed, denied map[string]int64) {
	fmt.Fprintf(w, "  allowed\t%s\n", counts(allowed))
	fmt.Fprintf(w, "  denied\t%s\n", counts(denied))
}

// counts writes decisions by source, such as "3 by redis".
func counts(of map[string]int64) string {
	if len(of) == 0 {
		return "none"
	}
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d by %s", of[source], source))
	}
	return strings.Join(parts, ", ")
}

// inspected is the state of a key.
type inspected hybrid.Inspection

// writes is a function that writes a named line.
type writes func(name, format string, args ...any)

// lines writes a sentence, and returns a function for the lines below. end writes them.
func lines(w io.Writer, sentence string) (line writes, end func() error) {
	fmt.Fprintf(w, "%s\n\n", sentence)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	return func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }, t.Flush
}

// keyLines writes the lines about a key of any kind.
func keyLines(line writes, key, digest string, slot int, known bool, at time.Time) {
	line("key", "%q, key_digest %s, slot %d", key, digest, slot) // quoted, because a key may contain any bytes
	if !known {
		line("memory", "this process knows nothing of the key: no call has used it here lately, or the limiter counts under another key")
	}
	line("at", "%s", at.UTC().Format(time.RFC3339Nano))
}

// switchSaid describes the switch in force.
func switchSaid(s string, own, shadow bool) string {
	return s + map[bool]string{true: ", this process's own"}[own] + map[bool]string{true: "; in shadow"}[shadow]
}

func (i inspected) text(w io.Writer) {
	line, end := lines(w, i.Sentence)
	defer end()
	line("limiter", "%s: %v, mode %s", i.Policy, i.Limit, i.Mode)
	keyLines(line, i.Key, i.Digest, i.Slot, i.Known, i.At)
	if !i.DenyUntil.IsZero() {
		line("deny until", "%s", i.DenyUntil.UTC().Format(time.RFC3339Nano))
	}
	line("leased", "%s", leased(i))
	line("owed", "%d units, %d of them by the fallback; %d calls are waiting", i.Owed, i.Fallback, i.Waiting)
	if i.Viewed {
		line("Redis view", "%d units left, %v ago", i.ViewLeft, i.ViewAge.Round(time.Millisecond))
	} else {
		line("Redis view", "none yet")
	}
	line("fleet", "%d processes%s, credit %d", i.Fleet, map[bool]string{false: " (uncertain)"}[i.FleetKnown], i.Credit)
	line("switch", "%s", switchSaid(i.Switch, i.SwitchOwn, i.Shadow))
	line("breaker", "%s", i.Breaker)
	switch k := i.Redis; {
	case k != nil:
		line("Redis now", "%s", k)
		line("", "%d units debited, %d in the ledger, expires in %v", k.Debited, k.Leased, k.TTL)
	case i.RedisError != "":
		line("Redis now", "%s", i.RedisError)
	}
}

// leased describes the key's lease.
func leased(i inspected) string {
	if i.Leased == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d units, until %s", i.Leased, i.LeaseUntil.UTC().Format(time.RFC3339Nano))
}
