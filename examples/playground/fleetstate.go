package main

import (
	"math"
	"time"
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
	Number  int    `json:"number"`
	State   string `json:"state"`
	N       int64  `json:"n"`
	Credit  int64  `json:"credit"`
	Breaker string `json:"breaker"`
	Held    int64  `json:"held"`
	Owed    int64  `json:"owed"`
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
		p := processState{Number: s.number, State: s.condition()}
		if !s.crashed {
			st := s.limiter.Stats()
			p.N, p.Credit, p.Breaker, p.Held, p.Owed = st.Fleet, st.Credit, st.Breaker.String(), st.Held, st.Owed
			sum.add(s.before)
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

func (f *fleet) stats() libraryStats {
	all := ended{stats: map[string][2]int64{}, messages: f.gone.messages}
	for src, both := range f.gone.stats {
		all.stats[src] = both
	}
	var each []processStats
	for _, s := range f.slots {
		if !s.crashed {
			st := s.limiter.Stats()
			all.add(st)
			all.messages += s.messages()
			each = append(each, processStats{s.number, st.Fleet, st.Credit, st.Breaker.String()})
		}
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

func (f *fleet) history() (h history) {
	err := f.do(func() error {
		h = history{
			State: f.look(), Samples: append([]sample{}, f.samples...), Flights: append([]flightSample{}, f.flights...), Events: f.log.all(),
			Sources: sourceNames(), Start: f.start.UnixMilli(),
		}
		return nil
	})
	if err != nil {
		h.Sources = sourceNames()
	}
	return h
}
