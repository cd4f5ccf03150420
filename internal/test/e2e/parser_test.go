package e2e

import (
	"errors"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// TestParserAgainstAnother checks that the library's parser accepts the same
// fields as another parser, as far as the draft allows them, and reads the same
// values.
func TestParserAgainstAnother(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		`"a"`, `"b\"\\c"`, `"`, `\`, "a", "*t/x:y", "r", "t", "q", ";", "; ", "=", ",", ", ", "\t", " ", "1", "0", "-7", "-", "1.5", "1.", ".5", "1.2345",
		"999999999999999", "1000000000000000", "123456789012.1", "1234567890123.1", "?1", "?2", ":YQ==:", ":YQ:", ":=:", ":Y!:", ":", "@123", "@1.5", `%"a%c3%bc"`, `%"%C3"`, `%"%c3"`, "(", ")", `("a")`,
		`"a";r=1`, `"b";r=0;t=30`, `;pk=:cHM=:`, `;t=5`, `;r=2`, "é",
	})
	param := rapid.SampledFrom([]string{
		";r=1", ";r=999999999999999", "; r=7", ";t=30", ";t=999999999999999", ";pk=:cHM=:", ";x", ";x=?0", ";*a=tok", ";d=1.25", ";s=\"q\\\"\"", ";at=@-5", ";u=%\"a%c3%bc\"", ";r=-1", ";t=?1", ";pk=\"no\"",
	})
	item := rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom([]string{`"a"`, `""`, `"b c\"\\"`, `"a"`, "tok", "1"}).Draw(t, "name")
		return name + ";r=3" + strings.Join(rapid.SliceOfN(param, 0, 3).Draw(t, "params"), "")
	})
	var good, bad int
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			items := rapid.SliceOfN(item, 1, 3).Draw(t, "items")
			text := strings.Join(items, rapid.SampledFrom([]string{",", ", ", "\t,  "}).Draw(t, "comma"))
			if rapid.IntRange(0, 2).Draw(t, "broken") == 0 {
				at := rapid.IntRange(0, len(text)).Draw(t, "at")
				text = text[:at] + piece.Draw(t, "piece") + text[at:]
			}
			return text
		}), 1, 2).Draw(t, "lines")
		got, err := ratelimitheader.ParseRateLimit(http.Header{"Ratelimit": lines})
		if err != nil && !errors.Is(err, ratelimitheader.ErrMalformed) {
			t.Fatal(err)
		}
		want, valid := reference(lines)
		if err == nil && !valid && unpadded(lines) {
			return
		}
		if (err == nil) != valid {
			t.Fatalf("%q: error %v, but valid by the other parser: %t", lines, err, valid)
		}
		if !valid {
			bad++
			return
		}
		good++
		if len(got) != len(want) {
			t.Fatalf("%q: %+v, want %+v", lines, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%q: %+v, want %+v", lines, got[i], want[i])
			}
		}
	})
	if good == 0 || bad == 0 {
		t.Errorf("%d valid and %d invalid texts, want some of both", good, bad)
	}
}

var byteSequence = regexp.MustCompile(`:([A-Za-z0-9+/]+):`)

// unpadded reports whether a Byte Sequence has no base64 padding. A parser should
// accept it (RFC 9651, section 4.2.7). The library's parser does, and the other
// one does not.
func unpadded(lines []string) bool {
	for _, m := range byteSequence.FindAllStringSubmatch(strings.Join(lines, ","), -1) {
		if len(m[1])%4 != 0 {
			return true
		}
	}
	return false
}

// reference is ParseRateLimit with the other parser.
func reference(lines []string) (limits []ratelimitheader.ServiceLimit, valid bool) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil, false
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, false
		}
		var l ratelimitheader.ServiceLimit
		if l.Policy, ok = item.Value.(string); !ok {
			return nil, false
		}
		r, _ := item.Params.Get("r")
		if l.Remaining, ok = r.(int64); !ok || l.Remaining < 0 {
			return nil, false
		}
		if v, some := item.Params.Get("t"); some {
			n, ok := v.(int64)
			if !ok || n < 0 {
				return nil, false
			}
			l.Window = time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
		}
		if v, some := item.Params.Get("pk"); some {
			b, ok := v.([]byte)
			if !ok {
				return nil, false
			}
			l.PartitionKey = string(b)
		}
		limits = append(limits, l)
	}
	return limits, true
}

// FuzzParser compares the two parsers on any bytes.
func FuzzParser(f *testing.F) {
	for _, s := range []string{`"default";r=50;t=30`, `"a";r=1;pk=:cHM=:, "b";r=2`, `"a";r=1;x=?1;y=%"a";z=@5`, `"\"";r=0`, `a;r=1`, `"a";r=1,`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 8<<10 || strings.Count(s, ",") >= 64 { // longer than the library's parser reads
			return
		}
		got, err := ratelimitheader.ParseRateLimit(http.Header{"Ratelimit": {s}})
		want, valid := reference([]string{s})
		if err == nil && !valid && unpadded([]string{s}) {
			return
		}
		if (err == nil) != valid || len(got) != len(want) {
			t.Fatalf("%q: %+v, %v; want %+v, %t", s, got, err, want, valid)
		}
	})
}
