package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// ledger has the debits of Redis, from its append-only files. For every write a
// file has the resulting state of the key and, in the same transaction, the
// envelope of the process that asked for it. So the ledger also has debits that
// were forgotten later, by a wipe, an eviction or a failover.
type ledger struct {
	entries []debit
	fallen  map[string]bool // servers that were masters until they failed
	eternal []string        // keys written without a TTL
	gone    []deletion
	applied map[string][]application // by batch
}

// application is one application of a batch. A repeated batch that debits nothing writes no state.
type application struct {
	server string
	order  int // as in debit
	keys   []string
}

// deletion is one deletion of a key, or of everything.
type deletion struct {
	server, key string
	order       int // as in debit
}

// debit is one write of a state.
type debit struct {
	server string
	batch  string // process, tag and sequence number; "" for a call without an envelope
	stamp  int64  // µs: when the batch was applied; 0 without an envelope
	order  int    // among the writes of a server
	key    string // the caller's
	state  string // the key in Redis
	raw    string // the state
	born   int64
	units  int64 // the increase of the state's Since
	turn   bool  // the state has a next poll, so the key was contended
}

func newLedger() ledger {
	return ledger{fallen: map[string]bool{}, applied: map[string][]application{}}
}

// readLedger reads the files of all servers: those in each server's directory,
// and those that were put aside.
func readLedger(w *world) (*ledger, error) {
	l := newLedger()
	for _, n := range w.nodes {
		l.fallen[n.Addr()] = n.fallen
		dirs, err := subdirs(n.attic)
		if err != nil {
			return nil, err
		}
		var files []string
		for _, dir := range append(dirs, filepath.Join(n.Dir(), "appendonlydir")) {
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

func subdirs(dir string) (out []string, err error) {
	found, err := os.ReadDir(dir)
	slices.SortFunc(found, func(a, b fs.DirEntry) int { // by number
		return cmp.Or(len(a.Name())-len(b.Name()), strings.Compare(a.Name(), b.Name()))
	})
	for _, d := range found {
		out = append(out, filepath.Join(dir, d.Name()))
	}
	return out, err
}

// read reads the files of one server.
func (l *ledger) read(server string, files []string) error {
	was := map[string]wire.State{} // by key
	order := 0
	for i, path := range files {
		if i > 0 && filepath.Dir(path) != filepath.Dir(files[i-1]) { // the server started empty
			l.gone = append(l.gone, deletion{server, everything, order + 1})
		}
		if err := readAOF(path, func(tx transaction) {
			order++
			l.apply(server, order, was, tx)
		}); err != nil {
			return err
		}
	}
	return nil
}

// apply records the writes of a transaction.
func (l *ledger) apply(server string, order int, was map[string]wire.State, tx transaction) {
	batch, stamp := envelopeOf(tx)
	app := application{server: server, order: order}
	for _, cmd := range tx {
		l.lost(server, order, cmd)
		key, raw, ok := written(cmd)
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
			l.gone = append(l.gone, deletion{server, key, order})
			continue
		}
		old := was[key]
		d := debit{server: server, batch: batch, stamp: stamp, order: order, key: name, state: key, raw: raw, born: s.Born, units: s.Since, turn: s.Slot > 0}
		if old.Born == s.Born {
			d.units -= old.Since
		}
		was[key] = s
		if !moved(cmd) {
			l.entries = append(l.entries, d)
			app.keys = append(app.keys, name)
		}
	}
	if batch != "" {
		l.applied[batch] = append(l.applied[batch], app)
	}
}

// undone reports whether the batch of a debit was applied again after the server had lost its envelope or the key, and did not debit
// the key then. The sender was told of the last application.
func (l *ledger) undone(d debit) bool {
	return slices.ContainsFunc(l.applied[d.batch], func(a application) bool {
		again := debit{server: a.server, batch: d.batch, order: a.order}
		return a.server == d.server && a.order > d.order && !slices.Contains(a.keys, d.key) &&
			(l.lostBetween(d, again) || l.goneBetween(d.state, d, again))
	})
}

// everything is the key of a deletion of all keys.
const everything = ""

// lost records the keys that a command deletes. Redis writes a DEL for each key that it evicts.
func (l *ledger) lost(server string, order int, cmd []string) {
	switch strings.ToUpper(cmd[0]) {
	case "FLUSHALL", "FLUSHDB":
		l.gone = append(l.gone, deletion{server, everything, order})
	case "DEL", "UNLINK":
		for _, key := range cmd[1:] {
			l.gone = append(l.gone, deletion{server, key, order})
		}
	}
}

// lostBetween reports whether the server deleted the envelope of a batch between two of its writes. Then a repeated batch is
// debited again, as after a loss of the state.
func (l *ledger) lostBetween(first, second debit) bool {
	envelope, _, _ := strings.Cut(second.batch, "#")
	return l.goneBetween(envelope, first, second)
}

// goneBetween reports whether the server of the second write deleted a key after the first one.
func (l *ledger) goneBetween(key string, first, second debit) bool {
	return slices.ContainsFunc(l.gone, func(d deletion) bool {
		return d.server == second.server && (d.key == everything || d.key == key) && first.order < d.order && d.order <= second.order
	})
}

// written returns the key and the text that a command has written.
func written(cmd []string) (key, text string, ok bool) {
	switch strings.ToUpper(cmd[0]) {
	case "SET":
		return cmd[1], cmd[2], true
	case "RESTORE", "RESTORE-ASKING":
		text, ok := restored(cmd[3])
		return cmd[1], text, ok
	}
	return "", "", false
}

// moved reports whether a command copies a key from another node, which debits
// nothing.
func moved(cmd []string) bool { return strings.HasPrefix(strings.ToUpper(cmd[0]), "RESTORE") }

// mortal reports whether the transaction gives a written key a TTL.
func mortal(tx transaction, cmd []string, key string) bool {
	if moved(cmd) {
		return cmd[2] != "0"
	}
	for _, word := range cmd[3:] {
		switch strings.ToUpper(word) {
		case "PX", "PXAT", "EX", "EXAT":
			return true
		}
	}
	return slices.ContainsFunc(tx, func(c []string) bool {
		return strings.HasPrefix(strings.ToUpper(c[0]), "PEXPIRE") && c[1] == key
	})
}

// callersKey returns the caller's key of a state's key in Redis.
func callersKey(key string) (string, bool) {
	_, rest, ok := strings.Cut(key, "}:"+limiterName+":")
	return rest, ok && strings.HasPrefix(key, "hl:v2:{")
}

// envelopeOf returns the batch that a transaction applies, and its stamp.
func envelopeOf(tx transaction) (batch string, stamp int64) {
	for _, cmd := range tx {
		key, text, ok := written(cmd)
		if !ok || !strings.Contains(key, "}:@env:") || len(text) < 2 {
			continue
		}
		fields := strings.Fields(text[2:])
		if len(fields) < 2 {
			continue
		}
		stamp, _ = strconv.ParseInt(fields[1], 10, 64)
		return key + "#" + fields[0], stamp
	}
	return "", 0
}

// sums are the totals of a ledger.
type sums struct {
	debited int64 // units; each batch counts once, with the units that its sender was told last
	again   int64 // units debited again for a batch that was repeated after its key or its envelope was gone
	exact   int64 // the part of debited by calls without an envelope

	// forgotten has the units that fallen servers debited and their successors
	// do not know of.
	forgotten int64
	twice     []string
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
	of := map[string]*ledger{}
	for _, d := range l.entries {
		if of[d.key] == nil {
			of[d.key] = &ledger{fallen: l.fallen, gone: l.gone, applied: l.applied}
		}
		of[d.key].entries = append(of[d.key].entries, d)
	}
	out := map[string]int64{}
	for key, one := range of {
		out[key] = one.sum().debited
	}
	return out
}

// sum returns the totals. A replica repeats the writes of its master, and each
// counts once. If both a fallen master and its successor applied a batch, in any
// order, the write of the successor counts, because the successor answered. If a
// server applies a batch again although it still has the key and the envelope,
// the batch was applied twice. That must never happen.
func (l *ledger) sum() (out sums) {
	type write struct{ batch, key, raw string }
	once := map[write]debit{}
	note := func(fallen bool) {
		for _, d := range l.entries {
			id := write{d.batch, d.key, d.raw}
			if _, known := once[id]; known || l.fallen[d.server] != fallen {
				continue // or it was written again unchanged
			}
			once[id] = d
			if fallen {
				out.forgotten += d.units
			}
		}
	}
	// A fallen server that has come back repeats the writes of its successor.
	// They cannot be taken from its own file, which lacks the snapshot in
	// between.
	note(false)
	note(true)
	last := map[write]debit{} // by batch and key
	var all []debit
	for _, d := range once {
		if d.batch == "" {
			out.debited, out.exact = out.debited+d.units, out.exact+d.units
			continue
		}
		all = append(all, d)
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
	for _, d := range all {
		id := write{batch: d.batch, key: d.key}
		old, again := last[id]
		switch {
		case !again:
			last[id] = d
			out.debited += d.units
		case old.born == d.born && old.server == d.server && !l.lostBetween(old, d):
			if d.units != 0 {
				out.twice = append(out.twice, fmt.Sprintf("%s: %s, %d units more", d.batch, d.key, d.units))
			}
		default: // the state or the envelope was lost, or the state was full and expired, in between
			out.debited += d.units - old.units
			out.again += old.units
			last[id] = d
		}
	}
	for _, d := range last {
		if l.undone(d) {
			out.debited -= d.units
			out.again += d.units
		}
	}
	return out
}
