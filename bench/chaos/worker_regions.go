package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/region"
)

const (
	regionName = "everywhere" // of the limiter
	regionKey  = "k"
)

// resident is a client process in a region.
type resident struct {
	spec    spec
	journal *journal
	hub     *hybrid.Hub
	limiter *region.Limiter
	failed  atomic.Pointer[string] // the first error of a call
	stop    func()                 // ends the load
}

func (p *resident) obey(o order) (r report, err error) {
	switch o {
	case orderOpen:
		err = p.open()
	case orderStart:
		p.start()
	case orderStop:
		p.stop()
	case orderShutdown:
		p.stop()
		r.Unsettled = p.shutdown()
	}
	if err != nil {
		return r, err
	}
	r.Stats, r.Region, r.Burst = p.limiter.Here().Stats(), p.limiter.Stats(), p.limiter.Here().Limit().Burst
	if failed := p.failed.Load(); failed != nil {
		r.Failed = *failed
	}
	return r, nil
}

func (p *resident) open() (err error) {
	config := hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), FleetSize: p.spec.FleetSize}
	if p.hub, err = hybrid.NewHub(p.spec.client(), config); err != nil {
		return err
	}
	others := map[string]redis.UniversalClient{}
	for name, addr := range p.spec.Region.Others {
		others[name] = spec{Topology: topologySingle, Addrs: []string{addr}}.client()
	}
	p.limiter, err = region.New(regionLimit, region.Config{
		Name: regionName, Here: p.spec.Region.Here, Hub: p.hub, Others: others,
	})
	if err != nil {
		return err
	}
	p.stop = func() {}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return until(ctx, patience, "the limiter is ready", func() bool { return p.limiter.Ready(ctx) == nil })
}

// regionSpike is the number of calls that a process makes one right after the other when its load begins: more than its
// region has units.
const regionSpike = 300

// start begins the load anew: a spike, and then calls evenly in time. Calls that were missed while the machine stood
// still are left out.
func (p *resident) start() {
	p.stop()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range regionSpike {
			p.call()
		}
		tick := time.NewTicker(time.Second / time.Duration(p.spec.Region.PerSecond))
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.call()
			}
		}
	})
	p.stop = sync.OnceFunc(func() { close(done); wg.Wait() })
}

func (p *resident) call() {
	from := time.Now()
	res, err := p.limiter.Allow(context.Background(), regionKey)
	took := time.Since(from)
	if err != nil {
		text := err.Error()
		p.failed.CompareAndSwap(nil, &text)
	}
	p.journal.write(record{
		kind: recordDecision, allowed: res.Allowed, failed: err != nil, source: res.Source, units: int32(res.Granted),
		begin: p.journal.clock.at(from), took: took,
	})
}

// shutdown settles and closes. It returns the text of the first error.
func (p *resident) shutdown() string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := p.limiter.Shutdown(ctx)
	if err == nil {
		err = p.hub.Shutdown(ctx)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
