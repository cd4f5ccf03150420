package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// aofOf writes transactions to an append-only file in the format of Redis. Each
// transaction is a list of commands.
func aofOf(t *testing.T, txs ...[]string) string {
	t.Helper()
	var b strings.Builder
	write := func(line string) {
		words := strings.Split(line, "|")
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	for _, tx := range txs {
		if len(tx) > 1 {
			write("MULTI")
		}
		for _, line := range tx {
			write(line)
		}
		if len(tx) > 1 {
			write("EXEC")
		}
	}
	path := filepath.Join(t.TempDir(), "appendonly.aof.1.incr.aof")
	if err := os.WriteFile(path, []byte(b.String()+"*3\r\n$3\r\nSE"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// state returns the SET of a state with a "created at" and the units debited
// since then.
func state(born, since int) string {
	return fmt.Sprintf("SET|hl:v2:{3}:chaos:k|1b1 0 0 %x %x|PXAT|1700000000000", born, since)
}

// envelope returns the SET of the envelope of a batch.
func envelope(process string, seq, stamp int) string {
	return fmt.Sprintf("SET|hl:v2:{3}:@env:%s|1e%d %d 0 0 0|PX|5000", process, seq, stamp)
}

// TestLedger checks the totals of histories with a known sum.
func TestLedger(t *testing.T) {
	for name, c := range map[string]struct {
		servers [][][]string // transactions of each
		fallen  int          // number of fallen servers, which come first
		want    sums
		eternal int
	}{
		"debits of two processes and an exact call": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{state(100, 7), envelope("b", 1, 110)},
				{state(100, 8)},
				{state(100, 12), envelope("a", 2, 120)},
			}},
			want: sums{debited: 12},
		},
		"a batch seen again, which changes nothing": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{state(100, 5), envelope("a", 1, 100)},
			}},
			want: sums{debited: 5},
		},
		"a batch applied twice": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{state(100, 10), envelope("a", 1, 101)},
			}},
			want: sums{debited: 5, twice: []string{"hl:v2:{3}:@env:a#1: k, 5 units more"}},
		},
		"a batch applied again after its envelope was evicted": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{"DEL|hl:v2:{3}:@env:a"},
				{state(100, 10), envelope("a", 1, 101)},
			}},
			want: sums{debited: 5, again: 5},
		},
		"a batch applied twice, and another envelope evicted": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{"DEL|hl:v2:{3}:@env:b"},
				{state(100, 10), envelope("a", 1, 101)},
			}},
			want: sums{debited: 5, twice: []string{"hl:v2:{3}:@env:a#1: k, 5 units more"}},
		},
		"a batch applied again after a loss": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{"FLUSHALL"},
				{state(200, 4), envelope("a", 1, 200)},
				{state(200, 6), envelope("b", 1, 210)},
			}},
			want: sums{debited: 6, again: 5},
		},
		"a batch applied again after a loss, which debits nothing": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{"DEL|hl:v2:{3}:@env:a"},
				{"DEL|hl:v2:{3}:chaos:k"},
				{"SET|hl:v2:{3}:@epoch|12|PX|5000", envelope("a", 1, 200)},
			}},
			want: sums{again: 5},
		},
		"a batch applied again after a wipe, which debits nothing": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{"FLUSHALL"},
				{"SET|hl:v2:{3}:@epoch|12|PX|5000", envelope("a", 1, 200)},
			}},
			want: sums{again: 5},
		},
		"a batch applied again after the loss of its key, which debits nothing": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{"SET|hl:v2:{3}:chaos:k|2b1 2 3|PX|5000"},
				{"SET|hl:v2:{3}:@epoch|12|PX|5000", envelope("a", 1, 200)},
			}},
			want: sums{again: 5},
		},
		"a batch seen again, whose envelope is written again": {
			servers: [][][]string{{
				{state(100, 5), envelope("a", 1, 100)},
				{"SET|hl:v2:{3}:@epoch|12|PX|5000", envelope("a", 1, 200)},
			}},
			want: sums{debited: 5},
		},
		"a replica writes what its master wrote": {
			servers: [][][]string{
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 7), envelope("a", 2, 110)}},
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 7), envelope("a", 2, 110)}},
			},
			want: sums{debited: 7},
		},
		"a failover loses what the master had acknowledged": {
			servers: [][][]string{
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 9), envelope("a", 2, 110)}},
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 6), envelope("b", 1, 150)}},
			},
			fallen: 1,
			want:   sums{debited: 10, forgotten: 4},
		},
		"a batch that a frozen master applies after its successor": {
			servers: [][][]string{
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 9), envelope("a", 2, 300)}},
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 8), envelope("a", 2, 200)}},
			},
			fallen: 1,
			want:   sums{debited: 8, again: 4, forgotten: 4},
		},
		"a server that comes back with a snapshot": {
			servers: [][][]string{
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 20), envelope("b", 4, 150)}},
				{{state(100, 5), envelope("a", 1, 100)}, {state(100, 18), envelope("b", 3, 140)}, {state(100, 20), envelope("b", 4, 150)}},
			},
			fallen: 1,
			want:   sums{debited: 20},
		},
		"a key that moves to another node": {
			servers: [][][]string{
				{{state(100, 5), envelope("a", 1, 100)}, {"DEL|hl:v2:{3}:chaos:k"}},
				{{"RESTORE|hl:v2:{3}:chaos:k|1700000000000|" + payload("1b1 0 0 64 5") + "|ABSTTL"}, {state(100, 9), envelope("a", 2, 160)}},
			},
			want: sums{debited: 9},
		},
		"a key without a TTL": {
			servers: [][][]string{{{"SET|hl:v2:{3}:@epoch|12"}, {"SET|filler|1"}}},
			eternal: 1,
		},
		"a TTL by a command of its own": {
			servers: [][][]string{{{"SET|hl:v2:{3}:@epoch|12", "PEXPIREAT|hl:v2:{3}:@epoch|1700000000000"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			for i, txs := range c.servers {
				server := fmt.Sprint("server", i)
				l.fallen[server] = i < c.fallen
				if err := l.read(server, []string{aofOf(t, txs...)}); err != nil {
					t.Fatal(err)
				}
			}
			got := l.sum()
			if fmt.Sprint(got) != fmt.Sprint(c.want) || len(l.eternal) != c.eternal {
				t.Errorf("%+v, %v; want %+v, %d keys without a TTL", got, l.eternal, c.want, c.eternal)
			}
		})
	}
}

// payload returns the payload of MIGRATE for a short text.
func payload(text string) string {
	return "\x00" + string(rune(len(text))) + text + "\x0a\x00checksum"
}

func TestPayloads(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		payload, want string
		ok            bool
	}{
		{payload("abc"), "abc", true},
		{"\x00\x41\x2c" + long + "\x0a\x00checksum", long, true},
		{"\x00\xc3" + long, "", false}, // compressed
		{"\x01\x03abc\x0a\x00checksum", "", false},
		{"", "", false},
	} {
		if got, ok := restored(c.payload); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %q, %v", c.payload, got, ok)
		}
	}
}
