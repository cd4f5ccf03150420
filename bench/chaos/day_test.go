package main

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// TestCheckDays checks that each day has a bound of its own, and that a call near the border counts in neither.
func TestCheckDays(t *testing.T) {
	const border = int64(1e9)
	for _, c := range []struct {
		name   string
		first  int64 // units before the border
		vague  int64 // at it
		second int64
		alone  bool // by fallbacks
		allow  allowance
		broken string
	}{
		{name: "at the bound", first: 200, vague: 50, second: 200},
		{name: "above it before the border", first: 201, second: 1, broken: "201 units admitted in a day, want at most 200"},
		{name: "above it after the border", first: 1, second: 201, broken: "201 units admitted in a day, want at most 200"},
		{name: "fallbacks have a share", first: 203, second: 203, alone: true},
		{name: "but not more", first: 204, alone: true, broken: "204 units admitted by fallbacks in a day, want at most 203"},
		{name: "a loss", first: 200 + 300, allow: forgets},
		{name: "more than a loss", first: 200 + 301, allow: forgets, broken: "501 units admitted"},
		{name: "a step", second: 400, allow: allowance{bursts: 1}},
	} {
		source := hybridlimit.SourceLease
		if c.alone {
			source = hybridlimit.SourceFallback
		}
		admitted := func(at, units int64) record {
			return record{kind: recordDecision, stream: 1, allowed: true, source: source, begin: at, units: int32(units)}
		}
		e := &evidence{
			load: dayLoad, mode: hybrid.ModeStrict, border: border, allowed: c.allow, clients: make([]witness, 3),
		}
		e.clients[0].history = []record{
			admitted(border/2, c.first), admitted(border+1, c.vague), admitted(2*border, c.second),
		}
		v := &verdict{figures: &figures{}}
		v.checkBound(e)
		text := ""
		for _, x := range v.Broken {
			text += x.text
		}
		if (c.broken == "") != (text == "") || !strings.Contains(text, c.broken) {
			t.Errorf("%s: %q, want %q", c.name, text, c.broken)
		}
	}
}
