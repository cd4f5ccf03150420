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

// hotKey is the key of all calls of the fleet.
const hotKey = "user:42"

// process is one process of the fleet: a hub with one limiter, with its own
// client and link. The naive limiter beside it gets the same calls.
type process struct {
	number  int
	link    *link
	client  *redis.Client
	limiter *hybrid.Limiter
	naive   *naive
	tally   *tally

	perSecond atomic.Int64  // calls a second, in thousandths
	compare   atomic.Bool   // also ask the naive limiter
	frozen    atomic.Bool   // paused
	wake      chan struct{} // signals that the load has changed
	stop      chan struct{}
	load      sync.WaitGroup
}

// processConfig has the settings of a process.
type processConfig struct {
	number   int
	settings settings
	epoch    time.Time // the begin of cell 0
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

// pace is the time between two batches of calls. batches is the number of
// batches that may wait for Redis at once. maxLag is the longest delay of the
// load. Calls that cannot be made in time are dropped.
const (
	pace    = 10 * time.Millisecond
	batches = 8
	maxLag  = 250 * time.Millisecond
)

// offer makes the calls of the process. It uses one goroutine as long as no call
// waits.
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
		if rate == 0 { // no ticks while there is no load
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
		default: // all batches wait
		}
	}
}

// aim sets the number of calls a second.
func (p *process) aim(perSecond float64) {
	p.perSecond.Store(int64(perSecond * 1000))
	select {
	case p.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// call makes the given number of calls, one after the other.
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

// end stops the load and the limiter. With grace the limiter pays its owed units
// and leaves the fleet. Without grace it ends as in a crash. end reports whether
// everything was paid.
func (p *process) end(grace time.Duration) (settled bool) {
	p.frozen.Store(true) // also in the middle of a batch
	close(p.stop)
	if grace > 0 {
		p.load.Wait() // calls in progress get an answer
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		settled = p.limiter.Shutdown(ctx) == nil // unpaid units are in Stats().Dropped
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

// newObserver returns a limiter that reads the state of the key in Redis. It
// bypasses all faults.
func newObserver(s *store, limit hybridlimit.Limit) (*global.Limiter, error) {
	return global.New(s.admin, limit, global.Config{Prefix: s.prefix, Name: "requests", Tags: 1})
}
