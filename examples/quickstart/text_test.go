package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

func TestText(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{number(0), "0"},
		{number(999), "999"},
		{number(1000), "1,000"},
		{number(1234567), "1,234,567"},
		{number(-123), "-123"},
		{number(-1234), "-1,234"},
		{percent(0, 10), "·"},
		{percent(1, 1000), "<1"},
		{percent(995, 1000), "100"},
		{percent(1, 3), "33"},
		{percent(0, 0), "·"},
		{perDecision(1, 0), "-"},
		{perDecision(55, 1000), "0.055"},
		{short(0), "0ns"},
		{short(999), "999ns"},
		{short(1499), "1.5µs"},
		{short(9949), "9.9µs"},
		{short(9950), "10µs"},
		{short(21 * time.Millisecond), "21ms"},
		{short(1500 * time.Millisecond), "1.5s"},
		{list([]int{1}), "1"},
		{list([]int{1, 3}), "1 and 3"},
		{list([]int{1, 2, 40}), "1, 2 and 40"},
		{when(6*time.Second, 6*time.Second), "    6.0s"},
		{when(9*time.Second, 9700*time.Millisecond), "9.0-9.7s"},
		{when(-time.Second, 0), "    0.0s"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}

func TestEventsOfSeveralProcessesAreOne(t *testing.T) {
	var out bytes.Buffer
	b := newBoard(&out, config{Processes: 3})
	b.event(event{At: 6 * time.Second, Text: "Redis is killed"}, 0)
	for p := 3; p >= 1; p-- {
		b.event(event{At: time.Duration(600+p) * 10 * time.Millisecond, Text: "gone", Cause: "EOF"}, p)
	}
	b.event(event{At: 7 * time.Second, Text: "back"}, 3)
	b.event(event{At: 8 * time.Second, Text: "back"}, 1)
	b.flush()
	b.flush()
	want := `
    6.0s ► Redis is killed
    6.0s ► all 3 processes: gone
           (EOF)
7.0-8.0s ► processes 1 and 3: back
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

func TestFlags(t *testing.T) {
	c, err := parseFlags([]string{"-rate", "40", "-mode", "Strict", "-seconds", "20"}, io.Discard)
	if err != nil || c.Burst != 40 || c.Mode != hybrid.ModeStrict {
		t.Errorf("%+v, %v", c, err)
	}
	if from, to, ok := c.outage(); from != 8*time.Second || to != 12*time.Second || !ok {
		t.Errorf("outage from %v to %v, %v", from, to, ok)
	}
	_, err = parseFlags([]string{
		"-rate", "-1", "-mode", "x", "-seconds", "1", "-processes", "0", "-load", "0",
		"-redis", "a", "-redis-server", "rest",
	}, io.Discard)
	for _, want := range []string{"Limit.Rate", "-mode", "-seconds", "-processes", "-load", "-redis and", `"rest"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	if _, err := parseFlags([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("%v, want help", err)
	}
	if _, err := parseFlags([]string{"-rate", "2x"}, io.Discard); err == nil {
		t.Error("-rate 2x is taken")
	}
}
