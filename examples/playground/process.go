package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// hotKey is the key that the fleet is asked about.
const hotKey = "user:42"

// process is one of the fleet: a hub with one limiter, on a client and a link
// of its own, and the naive limiter beside it under the same calls.
type process struct {
	number  int
	link    *link
	client  *redis.Client
	limiter *hybrid.Limiter
	naive   *naive
	tally   *tally

	perSecond atomic.Int64  // calls it makes, in thousandths
	compare   atomic.Bool   // ask naive too
	frozen    atomic.Bool   // paused
	wake      chan struct{} // there is load again
	stop      chan struct{}
	load      sync.WaitGroup
}

// processConfig is what a process is made of.
type processConfig struct {
	number   int
	settings settings
	epoch    time.Time // of the cells
	log      slog.Handler
}

func startProcess(s *store, c processConfig) (*process, error) {
	p := &process{number: c.number, link: newLink(s), wake: make(chan struct{}, 1), stop: make(chan struct{}), tally: newTally(c.epoch)}
	p.client = redis.NewClient(s.options(p.link.dial))
	cfg := c.settings.limiter()
	cfg.Hub = hybrid.HubConfig{
		Prefix:    s.prefix,
		FleetSize: c.settings.Processes,
		Tags:      1, // one Redis, not a Cluster: all keys may share a command
		Logger:    slog.New(c.log),
	}
	var err error
	if p.limiter, err = hybrid.New(p.client, c.settings.limit(), cfg); err != nil {
		p.client.Close()
		p.link.cut()
		return nil, fmt.Errorf("process %d: %w", c.number, err)
	}
	p.naive = newNaive(redis.NewClient(s.options(p.link.dial)), s.prefix+":naive", c.settings.limit(), cfg.SyncInterval)
	p.load.Go(p.offer)
	return p, nil
}

// pace is the time between two batches of calls, batches how many may wait for
// Redis at once, and maxLag how far the load may be behind. Calls that cannot be
// made in time are not made up for.
const (
	pace    = 10 * time.Millisecond
	batches = 8
	maxLag  = 250 * time.Millisecond
)

// offer makes the calls of the process, from one goroutine as long as none of
// them waits.
func (p *process) offer() {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	room := make(chan struct{}, batches)
	last, due := time.Now(), 0.0
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		rate := float64(p.perSecond.Load()) / 1000
		if rate == 0 { // nothing ticks while nothing is to be done
			tick.Stop()
			select {
			case <-p.stop:
				return
			case <-p.wake:
			}
			tick.Reset(pace)
			last = time.Now()
			continue
		}
		now := time.Now()
		due += rate * min(now.Sub(last), maxLag).Seconds()
		last = now
		calls := int(due)
		due -= float64(calls)
		if calls == 0 || p.frozen.Load() {
			continue
		}
		select {
		case room <- struct{}{}:
			running.Go(func() { p.call(calls); <-room })
		default: // all of them wait
		}
	}
}

// aim sets how many calls it makes a second.
func (p *process) aim(perSecond float64) {
	p.perSecond.Store(int64(perSecond * 1000))
	select {
	case p.wake <- struct{}{}:
	default: // it will find it
	}
}

// call makes one call after the other.
func (p *process) call(calls int) {
	ctx := context.Background()
	compare := p.compare.Load()
	for range calls {
		if p.frozen.Load() {
			return
		}
		if compare {
			p.tally.naive(p.naive.allow(time.Now()))
		}
		began := time.Now()
		res, err := p.limiter.Allow(ctx, hotKey)
		p.tally.note(began, time.Now(), res, err)
	}
}

func (p *process) pause() {
	p.frozen.Store(true)
	p.link.pause()
}

func (p *process) resume() {
	p.link.resume()
	p.frozen.Store(false)
}

// end stops the load, and the limiter with grace (it pays what it owes and
// leaves the fleet) or without. It says whether all was paid.
func (p *process) end(grace time.Duration) (settled bool) {
	p.frozen.Store(true) // also in the middle of a batch
	close(p.stop)
	if grace > 0 {
		p.load.Wait() // who is in the middle of a call gets an answer
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		settled = p.limiter.Shutdown(ctx) == nil // what cannot be paid is in Stats().Dropped
		cancel()
	} else {
		p.link.cut() // a crash resets its connections before anything is settled
		p.limiter.Close()
		p.load.Wait()
	}
	p.naive.close()
	p.client.Close()
	p.link.cut()
	return settled
}

// newObserver reads what Redis has of the key, past all faults, for as long as
// its client lives.
func newObserver(s *store, limit hybridlimit.Limit) (*global.Limiter, error) {
	return global.New(s.admin, limit, global.Config{Prefix: s.prefix, Name: "requests", Tags: 1})
}
