package main

import (
	"context"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// subject is a target with its load.
type subject struct {
	target
	benchkit.Meter
	name, load string
	rings      []keyring
	paced      int                     // calls a second; 0: without a pause
	timed      bool                    // single calls are timed as well, at scale.timing calls a second
	single     bool                    // the load of one caller is measured as well, and storms
	took       *hdrhistogram.Histogram // ns of the timed calls in all rounds
}

// measure runs the load of a subject for a while. Rounds before 0 do not count.
func (r *results) measure(ctx context.Context, round int, s *subject) error {
	add := func(table string, f benchkit.Figures) {
		if round >= 0 {
			r.Add(table, s.load, s.name, f)
		}
	}
	lasts, took := r.scale.lasts, newHistogram()
	var got counted
	spent, err := s.Commands(ctx, func() error {
		if s.paced > 0 {
			return pace(ctx, s.target, s.rings, s.paced, lasts, &got, took)
		}
		return flood(ctx, s.target, s.rings, lasts, &got)
	})
	if err != nil {
		return err
	}
	n := float64(got.decisions.Load())
	cost := spent.Per(n)
	cost["perSecond"], cost["fails"] = n/spent.Wall.Seconds(), float64(got.fails.Load())/n
	add("decision", cost)
	if s.timed {
		if round >= 0 {
			took = s.took
		}
		return pace(ctx, s.target, s.rings, r.scale.timing, lasts, new(counted), took)
	}
	if !s.single {
		return nil
	}
	one, err := single(ctx, s.target, s.rings[0], lasts)
	if err != nil {
		return err
	}
	add("single", one)
	forgot, err := storm(ctx, s.Meter, s.target, s.rings)
	add("storm", forgot)
	return err
}

// hotRate is the limit of the hot key, which no limiter reaches. tailRate is the limit of each of many keys. The most
// used of them exceed it. ownRate is the limit of each key that only one goroutine uses. No limiter reaches it.
const (
	hotRate  = 1_000_000_000
	tailRate = 100
	ownRate  = 1000
)

// onHotKey and onOwnKeys are the loads on one key, and on keys that only one goroutine uses.
var (
	onHotKey  = "one hot key"
	onOwnKeys = benchkit.Whole(ownKeys) + " keys"
)

// decisions measures all kinds in interleaved rounds, and then those that ask Redis for each decision. Each of these has
// its own Redis, so that it does not pay for the states of others that expire, or for their messages after a round.
func (r *results) decisions(ctx context.Context, srv *benchkit.Redis) error {
	rings, paced := zipf(), r.scale.paced
	many := fmt.Sprintf("Zipf, %s keys", benchkit.Whole(zipfKeys))
	var all, exact subjects
	defer func() { all.close(); exact.close() }()
	for _, k := range kinds {
		hot := &subject{name: k.name, load: onHotKey, rings: hot(), timed: true, took: newHistogram()}
		if err := all.add(ctx, srv, k, hotRate, hot); err != nil {
			return err
		}
	}
	for _, s := range []*subject{
		{load: many, rings: rings},
		{load: fmt.Sprintf("%s, %s/s", many, benchkit.Whole(float64(paced))), rings: rings, paced: paced},
	} {
		if err := all.add(ctx, srv, kinds[0], tailRate, s); err != nil {
			return err
		}
	}
	if err := r.turns(ctx, all); err != nil {
		return err
	}
	for _, s := range all {
		if s.timed {
			r.Add("timed", s.load, s.name, quantiles(s.took))
		}
	}
	all.close() // so that they do not disturb those that follow
	all = nil
	for _, k := range []kind{{"global", newGlobal}, {"redis_rate", newRedisRate}} {
		srv, err := benchkit.StartRedis()
		if err != nil {
			return err
		}
		defer srv.Close()
		if err := exact.add(ctx, srv, k, ownRate, &subject{load: onOwnKeys, rings: own(), single: true}); err != nil {
			return err
		}
	}
	return r.turns(ctx, exact)
}

// subjects are compared with each other.
type subjects []*subject

func (all *subjects) add(ctx context.Context, srv *benchkit.Redis, k kind, rate int64, s *subject) (err error) {
	s.name, s.Meter = k.name, benchkit.Meter{Redis: srv, Wire: new(benchkit.Wire)}
	if s.target, err = k.make(ctx, srv.Addr, s.Wire, hybridlimit.PerSecond(rate)); err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	*all = append(*all, s)
	return nil
}

func (all subjects) close() {
	for _, s := range all {
		s.close()
	}
}

// turns measures the subjects. The first round warms up: connections, scripts, keys.
func (r *results) turns(ctx context.Context, all subjects) error {
	return benchkit.Turns(-1, r.scale.rounds, len(all), func(round, i int) error {
		if err := r.measure(ctx, round, all[i]); err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		return nil
	})
}
