package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// flightState has the calls in flight of the fleet as the page shows them.
type flightState struct {
	Running   running         `json:"running"`
	Most      running         `json:"most"` // at once
	Waiting   int64           `json:"waiting"`
	Booked    booked          `json:"booked"`
	Bounds    []bound         `json:"bounds"`
	Counting  bool            `json:"counting"` // false: counting begins shortly
	Admitted  int64           `json:"admitted"`
	Denied    int64           `json:"denied"`
	Fallback  int64           `json:"fallback"` // of Admitted
	Errors    int64           `json:"errors"`
	Last      string          `json:"last"`
	Processes []flightProcess `json:"processes"`
}

// flightProcess has the calls in flight of one process.
type flightProcess struct {
	Number  int     `json:"number"`
	State   string  `json:"state"`
	Running running `json:"running"`
	Held    int64   `json:"held"`  // permits that Redis has for the process
	Spare   int64   `json:"spare"` // of Held; no call uses them
	Waiting int64   `json:"waiting"`
	Share   int64   `json:"share"` // permits that the fallback gives the process now
	N       int64   `json:"n"`
	Member  bool    `json:"member"`
	Learns  bool    `json:"learns"` // Redis grants nothing yet
	Next    string  `json:"next"`   // the answer to a call, with its reason
}

func (f *fleet) lookAtFlights() flightState {
	var out flightState
	for _, s := range f.slots {
		p := flightProcess{Number: s.number, State: s.condition()}
		if !s.crashed {
			p.fill(s.flight)
		}
		out.Waiting += p.Waiting
		out.Processes = append(out.Processes, p)
	}
	if b := f.booked.Load(); b != nil {
		out.Booked = *b
	}
	a := f.inFlight
	a.mu.Lock()
	defer a.mu.Unlock()
	out.Running, out.Most, out.Bounds, out.Counting, out.Last = a.now, a.most, []bound{a.bound()}, a.since.IsZero(), a.last
	out.Admitted, out.Fallback, out.Errors = a.counts.admitted(), a.counts.Allowed[hybridlimit.SourceFallback], a.counts.Errors
	out.Denied = a.counts.decisions() - out.Admitted
	return out
}

func (p *flightProcess) fill(f *flight) {
	p.Running = f.all.of(f)
	i, err := f.limiter.Inspect(context.Background(), hotKey)
	if err != nil { // cannot happen: the key is valid, and the limiter is open
		return
	}
	p.Held, p.Spare, p.Waiting, p.Share, p.N, p.Member, p.Learns = i.Held, max(0, i.Usable-i.Running), i.Waiting, i.Share, i.Fleet, i.Member, i.Learns
	_, p.Next, _ = strings.Cut(i.Sentence, ": ")
}

// flightSample is a point of the chart of calls in flight.
type flightSample struct {
	Seq      int64     `json:"seq"`
	At       int64     `json:"at"` // ms since the start
	Span     int64     `json:"span"`
	Shared   []int64   `json:"shared"` // by process
	Alone    int64     `json:"alone"`
	Outlived int64     `json:"outlived"`
	Redis    condition `json:"redis"`
	Limit    int64     `json:"limit"`
}

// sampleFlights adds a point to the chart of calls in flight if there are any.
func (f *fleet) sampleFlights(now time.Time, span time.Duration) {
	f.inFlight.look(now)
	if !f.flying() {
		return // the chart stands still
	}
	f.flightSeq++
	state, _ := f.store.condition()
	s := flightSample{
		Seq: f.flightSeq, At: f.clock.ms(), Span: span.Milliseconds(), Shared: make([]int64, len(f.slots)), Redis: state, Limit: f.settings.Permits,
	}
	for p := range f.alive {
		r := f.inFlight.of(p.flight)
		s.Shared[p.number-1] = r.Shared
		s.Alone += r.Alone
		s.Outlived += r.Outlived
	}
	f.flights = latest(append(f.flights, s), maxSamples)
	f.send("flight", s)
}

// flying reports whether calls run or wait, or the load makes some.
func (f *fleet) flying() bool {
	if f.loaded() && f.settings.CallLoad > 0 {
		return true
	}
	for p := range f.alive {
		if p.flight.asking.Load() > 0 || f.inFlight.of(p.flight).sum() > 0 {
			return true
		}
	}
	return false
}

// maxCalls is the most calls that a page sends at once.
const maxCalls = 20

// callNow begins calls of a process, because a page asks for them.
func (f *fleet) callNow(number, n int) error {
	s, err := f.slot(number)
	if err != nil {
		return err
	}
	if n < 1 || n > maxCalls {
		return invalid("n", n, "must be 1 to 20")
	}
	if s.condition() != "running" {
		return fmt.Errorf("playground: process %d is %s: it cannot begin a call", number, s.condition())
	}
	for range n {
		s.flight.call(f.settings.callTime(), f.inFlight.tell)
	}
	return nil
}

// explainFlight describes the answer to a call and its reason in one line.
func explainFlight(f *flight, takes, waited time.Duration, res hybridlimit.Result, err error) string {
	after, why := "", ""
	if waited >= time.Millisecond {
		after = " after " + short(waited)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("Process %d: %v.", f.number, err)
	case res.Allowed && res.Source == hybridlimit.SourceLease:
		why = "admitted at once with a permit that the process held"
	case res.Allowed && res.Source == hybridlimit.SourceFallback:
		why = fmt.Sprintf("admitted by the fallback%s, because Redis grants nothing", after)
	case res.Allowed:
		why = fmt.Sprintf("admitted with a permit that Redis granted%s", after)
	case res.Source == hybridlimit.SourceRedis:
		return fmt.Sprintf("Process %d: denied%s: the fleet uses all %d permits.", f.number, after, res.Limit)
	default:
		return fmt.Sprintf("Process %d: denied%s: Redis grants nothing, and running calls use the process's share of the %d permits.", f.number, after, res.Limit)
	}
	return fmt.Sprintf("Process %d: %s. The call takes %s.", f.number, why, short(takes))
}

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
