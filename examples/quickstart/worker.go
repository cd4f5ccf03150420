package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// What a worker asks for: one key most of the time, and many others now and
// then, by Zipf's law. These stay far below their limit, and each of their calls
// costs the embedded Redis about as much as a hundred on the hot key; with a
// larger share they would keep a core busy.
const (
	hotKey     = "user:hot"
	tailShare  = 0.04
	tailKeys   = 500
	tailPower  = 1.2
	goroutines = 4 // of each process: one may wait for Redis while others go on
)

// newLimiter is all that an application needs of the library. Every process of
// the fleet makes the same one.
func newLimiter(rdb redis.UniversalClient, j job, events *eventLog) (*hybrid.Limiter, error) {
	return hybrid.New(rdb, j.limit(), hybrid.Config{
		Name:         "requests",
		Mode:         j.Mode,
		SyncEvery:    j.K,
		SyncInterval: j.T,
		Hub: hybrid.HubConfig{
			Prefix:    j.Prefix,
			FleetSize: j.Processes,
			Tags:      1, // one Redis, not a Cluster: all keys may share a command
			Logger:    events.logger(),
		},
	})
}

// work is a worker process: it makes a limiter, says that it is ready, waits
// for the parent to name the start, offers its part of the load, and settles.
func work(j job) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole group; the parent ends us
	starts := make(chan time.Time, 1)
	go listen(starts)
	redis.SetLogger(quiet{})

	rdb := redis.NewClient(&redis.Options{Addr: j.Addr})
	defer rdb.Close()
	out := newOutbox(os.Stdout)
	events := &eventLog{out: out}
	limiter, err := newLimiter(rdb, j, events)
	if err != nil {
		return err
	}
	defer limiter.Close()

	if err := awaitFleet(limiter, j.Processes); err != nil {
		return err
	}
	out.send(message{Kind: kindReady})
	start := <-starts
	events.begin(start)
	m := newMeter(start)
	m.sent = int64(limiter.Hub().Stats().Messages)
	offer(j.config, limiter, m, start, func(second int) { out.send(reportOf(m, limiter, second)) })

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := limiter.Shutdown(ctx); err != nil {
		return err
	}
	out.send(message{Kind: kindDone})
	return nil
}

// listen takes the start from the parent, and ends the process when the parent
// is no more.
func listen(starts chan<- time.Time) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if us, err := strconv.ParseInt(in.Text(), 10, 64); err == nil {
			// From here on the monotonic clock counts, which on one machine
			// runs alike for all processes and is never set.
			now := time.Now()
			starts <- now.Add(time.UnixMicro(us).Sub(now))
		}
	}
	os.Exit(1)
}

// awaitFleet waits until this process has counted all the others, and may give
// credit: half a second after its second heartbeat. An application need not
// wait; here it makes the first second look like the others.
func awaitFleet(l *hybrid.Limiter, processes int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		return err
	}
	for l.Stats().Fleet < int64(processes) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("only %d of %d processes have been seen", l.Stats().Fleet, processes)
		}
	}
	time.Sleep(700 * time.Millisecond)
	return nil
}

// offer makes the calls, and calls report after each second and, with 0, at
// the end.
func offer(c config, l *hybrid.Limiter, m *meter, start time.Time, report func(second int)) {
	end := start.Add(time.Duration(c.Seconds) * time.Second)
	perSecond := c.Load * float64(c.Rate) / (1 - tailShare) / float64(c.Processes*goroutines)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() { pace(l, m, start, end, perSecond) })
	}
	for s := 1; s <= c.Seconds; s++ {
		time.Sleep(time.Until(start.Add(time.Duration(s) * time.Second)))
		report(s)
	}
	wg.Wait()
	report(0)
}

// pace makes perSecond calls a second, a few every few milliseconds, and sleeps
// in between: a loop that spins would measure itself. Calls that are late by
// more than maxLag, because one of them waited or the machine was busy, are not
// made up for.
func pace(l *hybrid.Limiter, m *meter, start, end time.Time, perSecond float64) {
	const pause, maxLag = 4 * time.Millisecond, 50 * time.Millisecond
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	tail := rand.NewZipf(random, tailPower, 1, tailKeys-1)
	every := time.Duration(float64(time.Second) / perSecond)
	next := start.Add(rand.N(max(every, 1)))
	ctx := context.Background()
	for next.Before(end) {
		now := time.Now()
		if wait := next.Sub(now); wait > 0 {
			time.Sleep(max(wait, pause/2+rand.N(pause)))
			continue
		}
		if now.Sub(next) > maxLag {
			next = now.Add(-maxLag)
		}
		key, hot := hotKey, true
		if random.Float64() < tailShare {
			key, hot = "user:"+strconv.FormatUint(tail.Uint64(), 10), false
		}
		began := time.Now() // read once more after the call: some 50 ns of what is measured
		res, err := l.Allow(ctx, key)
		m.note(hot, began, time.Now(), res, err)
		next = next.Add(every)
	}
}

// reportOf adds to the meter's report what the limiter knows, and the messages
// since the last report.
func reportOf(m *meter, l *hybrid.Limiter, second int) message {
	r := m.take()
	s := l.Stats()
	r.Second, r.Fleet, r.Credit, r.Breaker = second, s.Fleet, s.Credit, s.Breaker.String()
	sent := int64(l.Hub().Stats().Messages)
	r.Messages = sent - m.sent
	m.sent = sent
	return message{Kind: kindReport, Report: &r}
}

// outbox writes messages, one line each.
type outbox struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func newOutbox(f *os.File) *outbox { return &outbox{enc: json.NewEncoder(f)} }

func (o *outbox) send(m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.enc.Encode(m) != nil {
		os.Exit(1) // nobody reads: the parent is gone
	}
}
