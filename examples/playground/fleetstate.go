package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

// fleetState is the fleet as the page shows it, without the data of samples.
type fleetState struct {
	Settings  settings       `json:"settings"`
	Redis     redisState     `json:"redis"`
	Processes []processState `json:"processes"`
	Totals    totals         `json:"totals"`
	Bounds    []bound        `json:"bounds"`
	Counting  bool           `json:"counting"` // false: counting begins shortly
	Flights   flightState    `json:"flights"`
}

type redisState struct {
	State    condition `json:"state"`
	SlowMs   int64     `json:"slow_ms"`
	BackIn   int64     `json:"back_in"` // seconds until the outage ends by itself, rounded up; 0: it does not
	Name     string    `json:"name"`
	Embedded bool      `json:"embedded"`
}

type processState struct {
	processStats
	State string `json:"state"`
	Held  int64  `json:"held"`
	Owed  int64  `json:"owed"`
}

// totals are the sums over all processes since the start.
type totals struct {
	Decisions int64   `json:"decisions"`
	Admitted  int64   `json:"admitted"`
	Offered   int64   `json:"offered"`
	Errors    int64   `json:"errors"`
	Messages  int64   `json:"messages"`
	Sources   []int64 `json:"sources"` // decisions, by shownSources
}

func (f *fleet) look() fleetState {
	state, delay := f.store.condition()
	out := fleetState{
		Settings: f.settings, Bounds: f.watch.bounds(), Counting: f.recount.IsZero(), Flights: f.lookAtFlights(),
		Redis: redisState{State: state, SlowMs: delay.Milliseconds(), Name: f.store.name(), Embedded: f.store.embedded()},
	}
	if !f.backAt.IsZero() {
		out.Redis.BackIn = max(1, int64(math.Ceil(time.Until(f.backAt).Seconds())))
	}
	sum := f.gone.counts
	out.Totals.Messages = f.gone.messages
	for _, s := range f.slots {
		p := processState{processStats: processStats{Number: s.number}, State: s.condition()}
		if !s.crashed {
			st := s.limiter.Stats()
			p.processStats, p.Held, p.Owed = s.stats(), st.Held, st.Owed
			sum.add(s.before, 1)
			out.Totals.Messages += s.sent
		}
		out.Processes = append(out.Processes, p)
	}
	out.Totals.Decisions, out.Totals.Admitted = sum.decisions(), sum.admitted()
	out.Totals.Offered, out.Totals.Errors = sum.Offered, sum.Errors
	out.Totals.Sources = sum.bySource()
	return out
}

// libraryStats has the counts of the limiters themselves, summed over all processes since the start, and the state of
// the running ones.
type libraryStats struct {
	Sources   map[string][2]int64 `json:"sources"` // by source: allowed and denied
	Messages  int64               `json:"messages"`
	Processes []processStats      `json:"processes"`
}

type processStats struct {
	Number  int    `json:"number"`
	N       int64  `json:"n"`
	Credit  int64  `json:"credit"`
	Breaker string `json:"breaker"`
}

func (p *process) stats() processStats {
	s := p.limiter.Stats()
	return processStats{p.number, s.Fleet, s.Credit, s.Breaker.String()}
}

func (f *fleet) stats() libraryStats {
	all := ended{stats: maps.Clone(f.gone.stats), messages: f.gone.messages}
	var each []processStats
	for p := range f.alive {
		all.add(p.limiter.Stats())
		all.messages += p.messages()
		each = append(each, p.stats())
	}
	return libraryStats{all.stats, all.messages, each}
}

// history is the initial data of a page.
type history struct {
	State   fleetState     `json:"state"`
	Samples []sample       `json:"samples"`
	Flights []flightSample `json:"flights"`
	Events  []event        `json:"events"`
	Sources []string       `json:"sources"` // names, in the order of samples
	Start   int64          `json:"start"`   // Unix ms
}

func (f *fleet) history() history {
	h := history{Sources: sourceNames()}
	_ = f.do(func() error { // fails only at the end of the program; the page then gets an empty history
		h.State, h.Events, h.Start = f.look(), f.log.all(), f.start.UnixMilli()
		h.Samples, h.Flights = append([]sample{}, f.samples...), append([]flightSample{}, f.flights...)
		return nil
	})
	return h
}

// restoring is the state after Redis has lost its memory, until the fleet has restored it.
type restoring struct {
	since    time.Time
	resynced int64 // the value of resynced before the loss
}

// resynced returns how often the processes have told Redis something that it had lost. It includes retired processes.
func (f *fleet) resynced() int64 {
	n := f.gone.resynced
	for p := range f.alive {
		n += p.limiter.Stats().Resynced
	}
	return n
}

// forgets begins to wait until the fleet has told Redis what it has lost. before is the value of resynced before the
// loss.
func (f *fleet) forgets(before int64) {
	f.watch.lost = true
	f.restored = &restoring{time.Now(), before}
}

// lookAtMemory logs the state of Redis after the processes have told it what it had lost.
func (f *fleet) lookAtMemory(now time.Time) {
	r := f.restored
	if r == nil || now.Sub(r.since) < 500*time.Millisecond {
		return
	}
	told := f.resynced() - r.resynced
	closed := true
	for p := range f.alive {
		closed = closed && (p.frozen.Load() || p.limiter.Stats().Breaker == breaker.Closed)
	}
	// A process that does not tell Redis at once does so within a second.
	if !closed || told == 0 && now.Sub(r.since) < 2*time.Second {
		return
	}
	limit := f.settings.limit()
	observer, err := newObserver(f.store, limit)
	var res hybridlimit.Result
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
		defer cancel()
		res, err = observer.Peek(ctx, hotKey)
	}
	if err != nil {
		// The first connection may still be to the Redis that died.
		if now.Sub(r.since) > 10*time.Second {
			f.restored = nil
			f.note(kindWarn, "The count in Redis cannot be read: %v.", err)
		}
		return
	}
	f.restored = nil
	used := limit.BurstSize() - res.Remaining
	what := fmt.Sprintf("Restored %d units: the fleet has told Redis what it had lost", used)
	if told == 0 {
		what = "There was nothing to restore: by now the lost units would have been refilled"
	}
	f.note(kindRedis, "%s; it counts %d of %d units as used.", what, used, limit.BurstSize())
}
