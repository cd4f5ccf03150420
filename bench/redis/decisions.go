package main

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hybridlimit/hybridlimit"
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
	single     series[oneCaller]       // empty: not measured
	storms     series[storm]           // empty: not measured
}

// subject is a target with its load.
type subject struct {
	target
	srv  *server
	wire *wire
	loads
}

type loads struct {
	row    *decisionRow
	rings  []keyring
	paced  int  // calls a second; 0: without a pause
	timing int  // calls a second while single calls are timed; 0: not timed
	single bool // the load of one caller is measured as well, and storms
}

// measure runs the load of a subject for a while.
func (s *subject) measure(ctx context.Context, lasts time.Duration) error {
	srv := s.srv
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
	if s.single {
		one, err := single(ctx, s.target, s.rings[0], lasts)
		if err != nil {
			return fmt.Errorf("%s: %w", s.row.name, err)
		}
		s.row.single = append(s.row.single, one)
		forgot, err := s.storm(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.row.name, err)
		}
		s.row.storms = append(s.row.storms, forgot)
	}
	return nil
}

// hotRate is the limit of the hot key, which no limiter reaches. tailRate is the limit of each of many keys. The most
// used of them exceed it. ownRate is the limit of each key that only one goroutine uses. No limiter reaches it.
const (
	hotRate  = 1_000_000_000
	tailRate = 100
	ownRate  = 1000
)

// onOwnKeys is the load on keys that only one goroutine uses.
var onOwnKeys = thousands(ownKeys) + " keys"

// decisions measures all kinds in interleaved rounds. timing is the number of calls a second while single calls are
// timed. paced is the number of calls a second of the slower load on many keys.
func decisions(ctx context.Context, srv *server, rounds int, lasts time.Duration, timing, paced int) ([]*decisionRow, error) {
	if err := srv.wipe(ctx); err != nil {
		return nil, err
	}
	var all subjects
	defer func() { all.close() }()
	for _, k := range kinds {
		if err := all.add(ctx, srv, k, "one hot key", hotRate, loads{rings: hot(), timing: timing}); err != nil {
			return nil, err
		}
	}
	rings := zipf()
	for _, l := range []loads{{rings: rings}, {rings: rings, paced: paced}} {
		load := fmt.Sprintf("Zipf, %s keys", thousands(zipfKeys))
		if l.paced > 0 {
			load += fmt.Sprintf(", %s/s", thousands(int64(l.paced)))
		}
		if err := all.add(ctx, srv, kinds[0], load, tailRate, l); err != nil {
			return nil, err
		}
	}
	return all.measure(ctx, rounds, lasts)
}

// exact measures limiters that ask Redis for each decision, in interleaved rounds. Each has its own Redis, so that it
// does not pay for the states of others that expire, or for their messages after a round.
func exact(ctx context.Context, rounds int, lasts time.Duration) ([]*decisionRow, error) {
	var all subjects
	defer func() { all.close() }()
	for _, k := range []kind{{"global", newGlobal}, {"redis_rate", newRedisRate}} {
		srv, err := startServer()
		if err != nil {
			return nil, err
		}
		defer srv.close()
		if err := all.add(ctx, srv, k, onOwnKeys, ownRate, loads{rings: own(), single: true}); err != nil {
			return nil, err
		}
	}
	return all.measure(ctx, rounds, lasts)
}

// subjects are compared with each other.
type subjects []*subject

func (all *subjects) add(ctx context.Context, srv *server, k kind, load string, rate int64, l loads) error {
	w := new(wire)
	t, err := k.make(ctx, srv, w, hybridlimit.PerSecond(rate))
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	l.row = &decisionRow{name: k.name, load: load, took: newHistogram()}
	*all = append(*all, &subject{t, srv, w, l})
	return nil
}

func (all subjects) close() {
	for _, s := range all {
		s.close()
	}
}

// measure returns the rows of the subjects, in their order.
func (all subjects) measure(ctx context.Context, rounds int, lasts time.Duration) (rows []*decisionRow, err error) {
	for round := -1; round < rounds; round++ { // round -1 warms up: connections, scripts, keys
		for i := range all {
			s := all[(i+max(round, 0))%len(all)]
			if err := s.measure(ctx, lasts); err != nil {
				return nil, err
			}
			if round < 0 {
				s.row.cost, s.row.single, s.row.storms = nil, nil, nil
				s.row.took.Reset()
			}
		}
	}
	for _, s := range all {
		rows = append(rows, s.row)
	}
	return rows, nil
}
