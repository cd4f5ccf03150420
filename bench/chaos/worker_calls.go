package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

const (
	callsName    = "calls"
	callsPermits = 12 // limit of calls in flight of the fleet
	callsFewer   = 5  // the lower limit of the row with another limit
	callsProcs   = 3  // processes of the fleet
	callsCallers = 8  // goroutines of a process that run calls
)

// flight is a client process that runs calls of one key from its start to its end. It records the begin of a call after
// the permit was acquired, and the end before it is released, so more calls never run than the records show by mistake.
type flight struct {
	spec    spec
	journal *journal
	hub     *hybrid.Hub
	limiter *hybrid.ConcurrencyLimiter
	served  atomic.Int64       // as in report
	cancel  context.CancelFunc // ends all calls
	callers sync.WaitGroup
}

func (f *flight) obey(o order) (r report, err error) {
	switch o {
	case orderOpen:
		err = f.open()
	case orderFewer:
		err = f.limiter.SetLimit(hybridlimit.Concurrent(callsFewer))
	case orderUsual:
		err = f.limiter.SetLimit(hybridlimit.Concurrent(callsPermits))
	case orderShutdown:
		f.cancel()
		f.callers.Wait()
		err = f.hub.Shutdown(context.Background())
	}
	return report{Served: f.served.Load()}, err
}

func (f *flight) open() (err error) {
	config := hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), FleetSize: f.spec.FleetSize}
	if f.hub, err = hybrid.NewHub(f.spec.client(), config); err != nil {
		return err
	}
	f.limiter, err = f.hub.Concurrency(hybridlimit.Concurrent(callsPermits), hybrid.ConcurrencyConfig{
		Name: callsName, MaxWait: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	member := false
	stop := repeat(10*time.Millisecond, func() {
		if is := f.limiter.Stats().Member; is != member {
			member = is
			f.journal.write(record{kind: recordMember, allowed: is, begin: f.journal.clock.now()})
		}
	})
	f.callers.Go(func() { <-ctx.Done(); stop() })
	for caller := range callsCallers {
		f.callers.Go(func() { f.run(ctx, caller) })
	}
	return nil
}

// run runs the calls of one goroutine.
func (f *flight) run(ctx context.Context, caller int) {
	for i := 0; ctx.Err() == nil; i++ {
		permit, res, err := f.limiter.Acquire(ctx, "k")
		if err != nil || !res.Allowed {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		r := record{kind: recordBegin, key: uint16(caller), source: res.Source, begin: f.journal.clock.now()}
		f.journal.write(r)
		if r.source != hybridlimit.SourceFallback {
			f.served.Store(r.begin)
		}
		lasts := time.Duration(5+(i*37+caller*11)%60) * time.Millisecond
		if i%50 == 7 {
			lasts = 3 * time.Second // longer than a membership without a heartbeat
		}
		select {
		case <-time.After(lasts):
		case <-ctx.Done():
		}
		r.kind, r.begin = recordEnd, f.journal.clock.now()
		f.journal.write(r)
		permit.Release()
	}
}
