package main

import (
	"context"
	"fmt"
	"time"
)

// booked has the permits that Redis has given to processes. lua/permits.lua describes the state that it is read from.
type booked struct {
	Known   bool  `json:"known"`
	Permits int64 `json:"permits"`
	Holders int64 `json:"holders"`  // processes with permits; ended ones count until another process takes their permits off
	LearnMs int64 `json:"learn_ms"` // time until Redis grants permits again
}

// readBooked reads the permits in Redis in the background. It bypasses all faults.
func (f *fleet) readBooked() {
	if f.reading.Swap(true) {
		return // the last reading still waits for Redis
	}
	f.done.Go(func() {
		defer f.reading.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
		defer cancel()
		b := f.store.booked(ctx)
		f.booked.Store(&b)
	})
}

// heldKey returns the Redis key of the permits. The names of keys are internal to the library, and a later version may
// change them.
func (s *store) heldKey() string { return s.prefix + ":v2:{0}:@held:" + flightName + ":" + hotKey }

func (s *store) booked(ctx context.Context) booked {
	if state, _ := s.condition(); state == redisDead && s.embedded() {
		return booked{} // no process can ask Redis
	}
	p := s.admin.Pipeline()
	clock := p.Time(ctx)
	state := p.HGetAll(ctx, s.heldKey())
	if _, err := p.Exec(ctx); err != nil {
		return booked{}
	}
	return parseBooked(state.Val(), clock.Val())
}

// parseBooked reads the holdings of a key at a time of Redis.
func parseBooked(state map[string]string, now time.Time) booked {
	b := booked{Known: true}
	var scarce, learn int64
	if _, err := fmt.Sscanf(state[""], "1 %d %d %d", &b.Permits, &scarce, &learn); err != nil {
		return b // no process holds permits
	}
	b.LearnMs = max(0, (learn-now.UnixMicro())/1000)
	for process, holding := range state {
		var permits, number int64
		if process == "" || process == "!" {
			continue
		}
		if _, err := fmt.Sscanf(holding, "%d %d", &permits, &number); err == nil && permits > 0 {
			b.Holders++
		}
	}
	return b
}
