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

// process is one process of the fleet: a hub with a limiter of a rate and one of calls in flight, with its own client
// and link. The naive limiter gets the same calls as the limiter of the rate.
type process struct {
	number  int
	link    *link
	client  *redis.Client
	hub     *hybrid.Hub
	limiter *hybrid.Limiter
	flight  *flight
	naive   *naive
	tally   *tally
	load    *load

	compare atomic.Bool // also ask the naive limiter
	frozen  atomic.Bool // paused
	stop    chan struct{}
	work    sync.WaitGroup

	// Of the fleet's goroutine.
	crashed bool
	before  counts // at the last sample
	sent    int64  // messages at the last sample
}

func startProcess(f *fleet, number int) (*process, error) {
	s, at := f.store, f.settings
	p := &process{number: number, link: newLink(s), load: newLoad(), stop: make(chan struct{}), tally: &tally{epoch: f.start}}
	p.client = redis.NewClient(s.options(p.link.dial))
	if err := p.limit(f); err != nil {
		if p.hub != nil {
			p.hub.Close()
		}
		p.client.Close()
		p.link.cut()
		return nil, fmt.Errorf("process %d: %w", number, err)
	}
	p.naive = newNaive(redis.NewClient(s.options(p.link.dial)), s.prefix+":naive", at.limit(), at.limiter().SyncInterval)
	p.work.Go(p.offer)
	p.work.Go(p.flight.run)
	return p, nil
}

// limit makes the hub and its limiters.
func (p *process) limit(f *fleet) (err error) {
	p.hub, err = hybrid.NewHub(p.client, hybrid.HubConfig{
		Prefix:    f.store.prefix,
		FleetSize: f.settings.Processes,
		Tags:      1, // one Redis, not a Cluster: all keys may share a command
		Logger:    slog.New(&listener{to: f.log, process: p.number, silent: p.frozen.Load}),
	})
	if err != nil {
		return err
	}
	if p.limiter, err = p.hub.Limiter(f.settings.limit(), f.settings.limiter()); err != nil {
		return err
	}
	calls, err := p.hub.Concurrency(f.settings.permits(), hybrid.ConcurrencyConfig{Name: flightName, MaxWait: flightWait})
	if err == nil {
		p.flight = newFlight(p, calls, f.inFlight)
	}
	return err
}

// batches is the number of batches of calls that may wait for Redis at once.
const batches = 8

// offer makes the calls of the process. It uses one goroutine as long as no call waits.
func (p *process) offer() {
	var running sync.WaitGroup
	defer running.Wait()
	room := make(chan struct{}, batches)
	p.load.run(p.stop, func() bool { return true }, func(_ time.Time, calls int) {
		if calls == 0 || p.frozen.Load() {
			return
		}
		select {
		case room <- struct{}{}:
			running.Go(func() { p.call(calls); <-room })
		default: // all batches wait
		}
	})
}

// messages returns the number of messages to Redis about the rate, and of heartbeats. A message about calls in flight
// has one op, because they all have one key.
func (p *process) messages() int64 {
	return int64(p.hub.Stats().Messages) - p.flight.limiter.Stats().Ops
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
	p.link.pause(true)
}

func (p *process) resume() {
	p.link.pause(false)
	p.frozen.Store(false)
}

// end stops the load and the limiters, and ends the calls in flight. With grace the limiters pay their owed units, give
// their permits back and leave the fleet. Without grace it ends as in a crash. end reports whether all units were paid.
func (p *process) end(grace time.Duration) (settled bool) {
	p.frozen.Store(true) // also in the middle of a batch
	close(p.stop)
	if grace > 0 {
		p.work.Wait() // calls in progress get an answer
		p.flight.all.leave(p.flight)
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		settled = p.limiter.Shutdown(ctx) == nil // unpaid units are in Stats().Dropped
		p.hub.Shutdown(ctx)                      // permits that are not given back are free when the process has left
		cancel()
	} else {
		p.link.cut() // a crash resets its connections before anything is settled
		p.hub.Close()
		p.work.Wait()
		p.flight.all.leave(p.flight)
	}
	p.flight.asks.Wait()
	p.naive.close()
	p.client.Close()
	p.link.cut()
	return settled
}

// newObserver returns a limiter that reads the state of the key in Redis. It bypasses all faults.
func newObserver(s *store, limit hybridlimit.Limit) (*global.Limiter, error) {
	return global.New(s.admin, limit, global.Config{Prefix: s.prefix, Name: "requests", Tags: 1})
}

// load is a number of calls a second. One goroutine makes them, and others change their number.
type load struct {
	perSecond atomic.Int64  // in thousandths
	wake      chan struct{} // signals that there may be something to do again

	last time.Time // of the last batch
	part float64   // of the next call
}

// pace is the time between two batches of calls. maxLag is the longest delay of the load. Calls that cannot be made in
// time are dropped.
const (
	pace   = 10 * time.Millisecond
	maxLag = 250 * time.Millisecond
)

func newLoad() *load { return &load{wake: make(chan struct{}, 1), last: time.Now()} }

// aim sets the number of calls a second.
func (l *load) aim(perSecond float64) {
	l.perSecond.Store(int64(perSecond * 1000))
	l.rouse()
}

// rouse ends a rest.
func (l *load) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// run calls do once per pace, with the number of calls to make now, until stop is closed. It rests without ticks while
// there is no load and idle returns true.
func (l *load) run(stop <-chan struct{}, idle func() bool, do func(now time.Time, calls int)) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if l.perSecond.Load() == 0 && idle() {
			tick.Stop()
			select {
			case <-stop:
				return
			case <-l.wake:
			}
			tick.Reset(pace)
			l.last = time.Now()
			continue
		}
		now := time.Now()
		l.part += float64(l.perSecond.Load()) / 1000 * min(now.Sub(l.last), maxLag).Seconds()
		l.last = now
		calls := int(l.part)
		l.part -= float64(calls)
		do(now, calls)
	}
}
