package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// ledger has the debits of Redis, from its append-only files. For every write a file has the resulting state of the key
// and, in the same transaction, the envelope of the process that asked for it. So the ledger also has debits that were
// forgotten later, by a wipe, an eviction or a failover.
type ledger struct {
	entries []debit
	fallen  map[string]bool // servers that were masters until they failed
	eternal []string        // keys written without a TTL
	gone    []deletion
	applied map[string][]application // by batch
}

// place is that of a write.
type place struct {
	server string
	order  int // among the writes of the server
}

// application is one application of a batch. A repeated batch that debits nothing writes no state.
type application struct {
	place
	keys []string
}

// deletion is one deletion of a key, or of everything.
type deletion struct {
	place
	key string
}

// debit is one write of a state.
type debit struct {
	place
	batch string // process, tag and sequence number; "" for a call without an envelope
	stamp int64  // µs: when the batch was applied; 0 without an envelope
	key   string // the caller's
	state string // the key in Redis
	raw   string // the state
	born  int64
	units int64 // the increase of the state's Since
	turn  bool  // the state has a next poll, so the key was contended
}

func newLedger() ledger {
	return ledger{fallen: map[string]bool{}, applied: map[string][]application{}}
}

// readLedger reads the files of all servers: those that were put aside, and those in each server's directory.
func readLedger(w *world) (*ledger, error) {
	l := newLedger()
	for _, n := range w.nodes {
		l.fallen[n.Addr()] = n.fallen
		aside, err := filepath.Glob(filepath.Join(n.attic, "*"))
		if err != nil {
			return nil, err
		}
		slices.SortFunc(aside, byNumber)
		var files []string
		for _, dir := range append(aside, filepath.Join(n.Dir(), "appendonlydir")) {
			in, err := aofFiles(dir)
			if err != nil {
				return nil, err
			}
			files = append(files, in...)
		}
		if err := l.read(n.Addr(), files); err != nil {
			return nil, err
		}
	}
	return &l, nil
}

func (l *ledger) read(server string, files []string) error {
	was := map[string]wire.State{} // by key
	order := 0
	for i, path := range files {
		if i > 0 && filepath.Dir(path) != filepath.Dir(files[i-1]) { // the server started empty
			l.gone = append(l.gone, deletion{place{server, order + 1}, everything})
		}
		if err := readAOF(path, func(tx transaction) {
			order++
			l.apply(place{server, order}, was, tx)
		}); err != nil {
			return err
		}
	}
	return nil
}

// apply records the writes of a transaction.
func (l *ledger) apply(at place, was map[string]wire.State, tx transaction) {
	batch, stamp := envelopeOf(tx)
	app := application{place: at}
	for _, cmd := range tx {
		for _, key := range deleted(cmd) {
			l.gone = append(l.gone, deletion{at, key})
		}
		key, raw, copied, ok := written(cmd)
		if !ok {
			continue
		}
		if strings.HasPrefix(key, "hl:") && !mortal(tx, cmd, key) {
			l.eternal = append(l.eternal, key)
		}
		name, ok := callersKey(key)
		if !ok {
			continue
		}
		s, ok := wire.DecodeState(raw)
		if !ok {
			delete(was, key) // written by a fault
			l.gone = append(l.gone, deletion{at, key})
			continue
		}
		d := debit{
			place: at, batch: batch, stamp: stamp, key: name, state: key, raw: raw, born: s.Born,
			units: s.Since, turn: s.Slot > 0,
		}
		if old := was[key]; old.Born == s.Born {
			d.units -= old.Since
		}
		if was[key] = s; !copied { // a copy debits nothing
			l.entries = append(l.entries, d)
			app.keys = append(app.keys, name)
		}
	}
	if batch != "" {
		l.applied[batch] = append(l.applied[batch], app)
	}
}

// callersKey returns the caller's key of the key in Redis of a state, or of a part of a split key.
func callersKey(key string) (string, bool) {
	p, ok := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}.Parse(key)
	return p.Key, ok && p.Limiter == limiterName && p.Key != ""
}

// undone reports whether the batch of a debit was applied again after the server had lost its envelope or the key, and
// did not debit the key then. The sender was told of the last application.
func (l *ledger) undone(d debit) bool {
	return slices.ContainsFunc(l.applied[d.batch], func(a application) bool {
		return a.server == d.server && a.order > d.order && !slices.Contains(a.keys, d.key) &&
			(l.lostBetween(d, a.place) || l.goneBetween(d.state, d.place, a.place))
	})
}

// lostBetween reports whether the server deleted the envelope of a batch between two of its writes. Then a repeated
// batch is debited again, as after a loss of the state.
func (l *ledger) lostBetween(first debit, second place) bool {
	envelope, _, _ := strings.Cut(first.batch, "#")
	return l.goneBetween(envelope, first.place, second)
}

// goneBetween reports whether the server of the second write deleted a key after the first one.
func (l *ledger) goneBetween(key string, first, second place) bool {
	return slices.ContainsFunc(l.gone, func(d deletion) bool {
		return d.server == second.server && (d.key == everything || d.key == key) &&
			first.order < d.order && d.order <= second.order
	})
}

// sums are the totals of a ledger.
type sums struct {
	debited int64 // units; each batch counts once, with the units that its sender was told last
	again   int64 // units debited again for a batch that was repeated after its key or its envelope was gone

	// forgotten has the units that fallen servers debited and their successors do not know of.
	forgotten int64
	twice     []string
}

// losses returns the number of times that a server lost the state of a key of the callers alone: it evicted it. Redis
// writes the end of a TTL as an eviction.
func (l *ledger) losses() map[string]int {
	out := map[string]int{}
	for _, d := range l.gone {
		if name, ok := callersKey(d.key); ok {
			out[name]++
		}
	}
	return out
}

// turns returns the number of states with a next poll, by key.
func (l *ledger) turns() map[string]int {
	out := map[string]int{}
	for _, d := range l.entries {
		if d.turn {
			out[d.key]++
		}
	}
	return out
}

// byKey returns the debited units of each key of the callers.
func (l *ledger) byKey() map[string]int64 {
	of := map[string][]debit{}
	for _, d := range l.entries {
		of[d.key] = append(of[d.key], d)
	}
	out := map[string]int64{}
	for key, entries := range of {
		one := *l
		one.entries = entries
		out[key] = one.sum().debited
	}
	return out
}

// sum returns the totals. A replica repeats the writes of its master, and each counts once. If both a fallen master and
// its successor applied a batch, in any order, the write of the successor counts, because the successor answered. If a
// server applies a batch again although it still has the key and the envelope, the batch was applied twice. That must
// never happen.
func (l *ledger) sum() (out sums) {
	type write struct{ batch, key, raw string }
	once := map[write]bool{}
	var all []debit // with a batch
	// A fallen server that has come back repeats the writes of its successor. They cannot be taken from its own file,
	// which lacks the snapshot in between.
	for _, fallen := range []bool{false, true} {
		for _, d := range l.entries {
			id := write{d.batch, d.key, d.raw}
			if once[id] || l.fallen[d.server] != fallen {
				continue // or it was written again unchanged
			}
			if once[id] = true; fallen {
				out.forgotten += d.units
			}
			if d.batch == "" {
				out.debited += d.units
			} else {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(a, b debit) int {
		if a.server == b.server { // by order, because the clock may have been moved
			return a.order - b.order
		}
		if l.fallen[a.server] != l.fallen[b.server] {
			if l.fallen[a.server] {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.stamp, b.stamp), strings.Compare(a.server, b.server))
	})
	last := map[write]debit{} // by batch and key
	for _, d := range all {
		id := write{batch: d.batch, key: d.key}
		old, again := last[id]
		if again && old.born == d.born && old.server == d.server && !l.lostBetween(old, d.place) {
			if d.units != 0 {
				out.twice = append(out.twice, fmt.Sprintf("%s: %s, %d units more", d.batch, d.key, d.units))
			}
			continue
		}
		// Or the state or the envelope was lost, or the state was full and expired, in between.
		out.debited += d.units - old.units
		out.again += old.units
		last[id] = d
	}
	for _, d := range last {
		if l.undone(d) {
			out.debited -= d.units
			out.again += d.units
		}
	}
	return out
}
