package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// This file checks the keys of a limiter with classes: the critical class, which is the limiter itself, and one class
// with a floor, the rest.

const (
	brokeReserve = "critical reserve"
	brokeUse     = "rate in use"
)

const (
	mostCritical = 0.99 // of the critical calls, while they are promised
	mostUse      = 0.9  // of the rate, while calls of the rest are denied
	busyUse      = 0.8  // the same on a machine that is busy
)

// reserve has the figures of the critical class.
type reserve struct {
	calls, admitted int64   // critical calls while they are promised
	others          int64   // critical calls before and after the outage while they are not
	local, locally  int64   // critical calls that the fallback decided in the outage, and those of them that it admitted
	used, rate      float64 // units admitted while calls of the rest were denied, and rate·t
	again           int64   // ns from the end of the fault until critical calls are promised; 0: not known
}

// MarshalText is for bench/chaos.json: the part of the critical calls that was admitted, the part of the rate that was
// in use while calls of the rest were denied, and the time from the end of the fault until critical calls are promised.
func (r reserve) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%.1f %%, %.0f %%, after %.1f s", 100*float64(r.admitted)/float64(max(r.calls, 1)),
		100*r.used/max(r.rate, 1), float64(r.again)/1e9), nil
}

// call is a decision of a client.
type call struct {
	record
	client   int
	critical bool
}

// account is the place of the call's account among those of a key.
func (c call) account() int {
	if c.critical {
		return 2 * c.client
	}
	return 2*c.client + 1
}

func (v *verdict) checkClasses(e *evidence) {
	if len(e.load.Classes) == 0 {
		return
	}
	for i, s := range e.load.Streams {
		if e.load.first(uint8(i)) != uint8(i) {
			continue
		}
		for k := range s.Keys {
			calls := e.callsFor(uint8(i), uint16(k))
			v.checkShares(e, s, k, calls)
			v.Reserve.count(e, s, calls)
		}
	}
	credit := e.credit(e.load.Streams[0])
	for c, st := range e.moments[0].books {
		v.want(st.stats.Credit <= credit, brokeBound,
			"client %d may give %d units of credit, want at most %d in a fleet of %d accounts",
			c, st.stats.Credit, credit, e.accounts())
	}
	r := v.Reserve
	v.want(float64(r.admitted) >= mostCritical*float64(r.calls), brokeReserve,
		"%d of %d critical calls were admitted while Redis answered and nothing had to be repaid, want %.0f %%",
		r.admitted, r.calls, 100*mostCritical)
	v.want(float64(r.locally) >= mostCritical*float64(r.local), brokeReserve,
		"the fallback admitted %d of %d critical calls, want %.0f %%", r.locally, r.local, 100*mostCritical)
	v.want(e.busy() || r.calls > r.others, brokeReserve,
		"only %d of %d critical calls before and after the outage were promised", r.calls, r.calls+r.others)
	most := mostUse
	if e.busy() {
		most = busyUse
	}
	v.want(r.used >= most*r.rate && (r.rate != 0 || e.busy()), brokeUse,
		"while calls of the rest were denied, %.0f of %.0f units were admitted, want %.0f %%", r.used, r.rate, 100*most)
}

// callsFor returns the decisions for a key of a stream, in order.
func (e *evidence) callsFor(stream uint8, key uint16) (out []call) {
	for i, r := range e.of(recordDecision) {
		if r.key == key && e.load.first(r.stream) == stream {
			out = append(out, call{r, i, e.load.Streams[r.stream].Class == ""})
		}
	}
	slices.SortFunc(out, func(a, b call) int { return cmp.Compare(a.begin, b.begin) })
	return out
}

// checkShares checks that the fallback of each process admits no more than one share of the limit to all classes
// together. It leaves out the time in which the fleet may have counted out a killed client, three heartbeats after the
// fault.
func (v *verdict) checkShares(e *evidence, s stream, k int, calls []call) {
	n := float64(len(e.clients))
	by := make([][]meter.Span, len(e.clients))
	for _, c := range calls {
		if c.allowed && c.source == hybridlimit.SourceFallback && c.begin < e.over+int64(calm) {
			by[c.client] = append(by[c.client], c.span())
		}
	}
	for i, spans := range by {
		units, bound := meter.WorstSpan(spans, float64(s.Rate)/n), float64(s.Burst)/n+1
		v.Alone.raise(units, bound)
		v.want(units <= bound, brokeBound, "key %s: %.0f units above the share of rate·t admitted by the fallback of "+
			"client %d in an interval, want at most %.0f", s.key(k), units, i, bound)
	}
}

// count counts the calls for a key.
func (r *reserve) count(e *evidence, s stream, calls []call) {
	floor := math.Ceil(e.load.Classes[0].Floor * float64(s.Burst))
	p := promise{
		floor: floor, level: floor, rate: float64(s.Rate) / 1e9, share: float64(s.Burst) / float64(len(e.clients)),
		away: map[int]float64{},
	}
	reserved := false            // when the fault began
	denied := int64(0)           // time of the last denial of the rest while critical calls are promised
	var used, since int64 = 0, 0 // units since the first such denial, and its time
	end := func() {
		if denied > since {
			r.used, r.rate = r.used+float64(used), r.rate+float64(denied-since)*p.rate
		}
		used, since, denied = 0, 0, 0
	}
	moment := 0
	for _, c := range calls {
		promised := p.next(c, e.clients[c.client].killed)
		if c.begin < e.hit {
			reserved = promised
		}
		for moment < len(e.moments) && c.begin > e.moments[moment].at {
			end() // the load has stopped
			moment++
		}
		outage := c.begin >= e.hit && c.begin < e.over
		switch {
		case !promised:
			end()
			if outage && reserved && c.critical && c.source == hybridlimit.SourceFallback {
				if r.local++; c.allowed {
					r.locally++
				}
			}
			if c.critical && (c.begin < e.hit || c.begin > e.back) {
				r.others++
			}
			continue
		case c.begin > e.over && r.again == 0:
			r.again = c.begin - e.over
		}
		if c.critical {
			if r.calls++; c.allowed {
				r.admitted++
			}
		} else if !c.allowed {
			if denied = c.begin; since == 0 {
				since, used = c.begin, 0
			}
		}
		used += int64(c.units)
	}
	end()
}

// promise follows the reserve of a key: a bucket with the size of the floor and the rate of the limit, from which only
// critical calls take units, and the units of the fallback when they are repaid. Critical calls are promised until the
// fallback decides a call of any class, and again when all processes are back and the reserve has been full since.
type promise struct {
	floor float64 // units
	rate  float64 // units per ns
	share float64 // units that an account repays at most
	level float64
	at    int64
	away  map[int]float64 // the accounts that Redis does not answer, and the units that their fallback admitted
	owing bool            // the reserve has not been full since the last outage
}

// next reports whether critical calls are promised at the time of a call, which comes after all calls before.
func (p *promise) next(c call, killed bool) bool {
	if p.at > 0 {
		p.level = min(p.floor, p.level+float64(c.begin-p.at)*p.rate)
	}
	p.at = c.begin
	if len(p.away) == 0 && p.level == p.floor {
		p.owing = false
	}
	switch id := c.account(); c.source {
	case hybridlimit.SourceFallback, hybridlimit.SourceTimeout:
		if p.owing = true; !killed { // a killed process repays nothing
			p.away[id] += float64(c.units)
		}
	default:
		if repaid, was := p.away[id]; was {
			p.level -= min(repaid, p.share)
			delete(p.away, id)
		}
		if c.critical {
			p.level -= float64(c.units)
		}
	}
	return !p.owing
}
