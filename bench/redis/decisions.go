package main

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// perDecision is the cost of a decision under one load.
type perDecision struct {
	perSecond      float64 // decisions
	messages       float64 // top-level commands
	inner          float64 // commands that scripts call
	cpu            float64 // µs of Redis
	sent, received float64 // bytes
	fails          float64 // errors
}

// decisionRow has the figures of a limiter under a load.
type decisionRow struct {
	name, load string
	cost       series[perDecision]
	took       *hdrhistogram.Histogram // ns of single calls in all rounds; nil: not measured
}

// subject is a target with its load.
type subject struct {
	target
	wire *wire
	loads
}

type loads struct {
	row    *decisionRow
	rings  []keyring
	paced  int // calls a second; 0: without a pause
	timing int // calls a second while single calls are timed; 0: not timed
}

// measure runs the load of a subject for a while.
func (s *subject) measure(ctx context.Context, srv *server, lasts time.Duration) error {
	calls, err := srv.calls(ctx)
	if err != nil {
		return err
	}
	cpu, err := srv.cpu(ctx)
	if err != nil {
		return err
	}
	wired := s.wire.traffic()
	var got counted
	if s.paced > 0 {
		got = pace(ctx, s.target, s.rings, s.paced, lasts, newHistogram())
	} else {
		got = flood(ctx, s.target, s.rings, lasts)
	}
	went := s.wire.traffic().since(wired)
	cpu2, err := srv.cpu(ctx)
	if err != nil {
		return err
	}
	calls2, err := srv.calls(ctx)
	if err != nil {
		return err
	}
	n := float64(got.decisions)
	s.row.cost = append(s.row.cost, perDecision{
		perSecond: n / got.took.Seconds(),
		messages:  float64(went.messages) / n,
		inner:     float64(max(0, calls2-calls-went.messages)) / n,
		cpu:       float64((cpu2 - cpu).Nanoseconds()) / 1000 / n,
		sent:      float64(went.sent) / n, received: float64(went.received) / n,
		fails: float64(got.fails) / n,
	})
	if s.timing > 0 {
		pace(ctx, s.target, s.rings, s.timing, lasts, s.row.took)
	}
	return nil
}

// hotRate is the limit of the hot key, which no limiter reaches. tailRate is
// the limit of each of many keys. The most used of them exceed it.
const (
	hotRate  = 1_000_000_000
	tailRate = 100
)

// decisions measures all kinds in interleaved rounds. timing is the number of
// calls a second while single calls are timed. paced is the number of calls a
// second of the slower load on many keys.
func decisions(ctx context.Context, srv *server, rounds int, lasts time.Duration, timing, paced int) ([]*decisionRow, error) {
	if err := srv.wipe(ctx); err != nil {
		return nil, err
	}
	var rows []*decisionRow
	var subjects []*subject
	defer func() {
		for _, s := range subjects {
			s.close()
		}
	}()
	add := func(k kind, load string, rate int64, l loads) error {
		w := new(wire)
		t, err := k.make(ctx, srv, w, rate)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		l.row = &decisionRow{name: k.name, load: load, took: newHistogram()}
		rows = append(rows, l.row)
		subjects = append(subjects, &subject{t, w, l})
		return nil
	}
	for _, k := range kinds {
		if err := add(k, "one hot key", hotRate, loads{rings: hot(), timing: timing}); err != nil {
			return rows, err
		}
	}
	many := kinds[0]
	rings := zipf()
	for _, l := range []loads{{rings: rings}, {rings: rings, paced: paced}} {
		load := fmt.Sprintf("Zipf, %s keys", thousands(zipfKeys))
		if l.paced > 0 {
			load += fmt.Sprintf(", %s/s", thousands(int64(l.paced)))
		}
		if err := add(many, load, tailRate, l); err != nil {
			return rows, err
		}
	}
	for round := -1; round < rounds; round++ { // round -1 warms up: connections, scripts, keys
		for i := range subjects {
			s := subjects[(i+max(round, 0))%len(subjects)]
			if err := s.measure(ctx, srv, lasts); err != nil {
				return rows, err
			}
			if round < 0 {
				s.row.cost = nil
				s.row.took.Reset()
			}
		}
	}
	return rows, nil
}
