package ratelease

import "math"

// State is a key in Redis. Its zero value is no state. Numbers are integers, which a float64 represents exactly: Lua has
// no others. Each product is rounded before a sum, as in Lua.
type State struct {
	Born, Last  float64    // µs
	Generation  float64    // number
	Rate, Burst float64    // of the last op
	Level       float64    // millionths left, down to -Burst
	Leased      [2]float64 // rates, of this generation and the one before
	Depth       [2]float64 // the most that the tokens of the processes may be
	Demand      [2]float64 // rates that calls asked for
	Peak        [2]float64 // the largest Level and Depth together: units that come back late must have had room
	// Unknown is the rates that a state before this one had leased. They count for a Life after Born. Told and ToldOut are
	// At and Out of the newest View that told them.
	Unknown, Told, ToldOut float64
	Reset                  float64 // µs of the last Op.Reset; what a process has seen before says nothing of the level
	More                   string  // fields of later versions, as in the state's text
}

// taken is a Told above all times: Leased has all rates, and no view adds to them.
const taken = 1 << 53

// Record is the lease of one process. Its zero value is none.
type Record struct {
	Number     float64 // of the op
	Born       float64 // State.Born
	Generation float64 // State.Generation
	Leased     float64 // its part of State.Leased
	Depth      float64 // its part of State.Depth
	Granted    float64 // to calls that waited
	Owed       float64 // Op.Owed
	Answer     Answer  // to the op
}

// Exchange runs an op at now (µs). ok is false for an op whose number is too old: it changes nothing. An op that comes
// again gets the same answer.
func Exchange(s State, r Record, op Op, now int64) (State, Record, Answer, bool) {
	number := float64(op.Number)
	switch {
	case r.Number > number:
		return s, r, Answer{}, false
	case r.Number == number:
		return s, r, r.Answer, true
	}
	s.load(op, float64(now))
	s.settle(r, op)
	if op.Reset {
		s.Level, s.Peak, s.Reset = s.room(), [2]float64{s.Burst, s.Burst}, float64(now)
	}
	next := Record{Number: number, Born: s.Born, Generation: s.Generation, Owed: float64(op.Owed)}
	next.Answer = s.lease(&next, op, float64(now))
	return s, next, next.Answer, true
}

// load advances the state to now, and gives it the op's limit.
func (s *State) load(op Op, now float64) {
	rate, burst := float64(op.Rate), float64(op.Burst)
	if s.Born == 0 {
		*s = State{Born: now, Last: now, Generation: math.Floor(now / Life), Rate: rate, Burst: burst, Level: burst, Peak: [2]float64{burst, burst}}
		s.see(op.View, now)
		return
	}
	generation := math.Floor(now / Life)
	if generation < s.Generation { // the clock was put back: no record may settle with sums of another time
		s.Leased = [2]float64{s.Leased[0] + s.Leased[1], 0}
		s.Depth = [2]float64{s.Depth[0] + s.Depth[1], 0}
		s.Demand, s.Peak = [2]float64{0, max(s.Demand[0], s.Demand[1])}, [2]float64{s.Burst, s.Burst}
		s.Generation, s.Born, s.Last, s.Unknown, s.Told = generation, now, min(s.Last, now), 0, taken
	}
	for range 2 {
		if s.Generation < generation {
			s.advance((s.Generation + 1) * Life)
			s.Leased, s.Depth, s.Demand = [2]float64{0, s.Leased[0]}, [2]float64{0, s.Depth[0]}, [2]float64{0, s.Demand[0]}
			s.Peak = [2]float64{0, s.Peak[0]}
			s.Generation++
		}
	}
	if s.Generation < generation { // the level may have been full
		s.Demand, s.Peak, s.Generation = [2]float64{}, [2]float64{s.Burst, s.Burst}, generation
	}
	s.advance(now)
	s.Rate, s.Burst = rate, burst
	s.Level = min(s.Level, s.room())
	s.Peak[0] = max(s.Peak[0], s.Level+s.Depth[0]+s.Depth[1])
	s.see(op.View, now)
}

// room returns the highest level.
func (s *State) room() float64 { return max(0, s.Burst-s.Depth[0]-s.Depth[1]) }

// unknown returns Unknown, if it counts at a time.
func (s *State) unknown(now float64) float64 {
	if now >= s.Born+Life {
		return 0
	}
	return s.Unknown
}

// out returns the leased rates that count at a time.
func (s *State) out(now float64) float64 { return s.Leased[0] + s.Leased[1] + s.unknown(now) }

// advance refills the level up to a time.
func (s *State) advance(to float64) {
	if end := s.Born + Life; s.Unknown > 0 && s.Last < end && end < to {
		s.advance(end)
	}
	if to <= s.Last {
		return
	}
	refill := math.Floor((to - s.Last) * (s.Rate - s.out(s.Last)) / Micro)
	s.Level, s.Last = max(-s.Burst, min(s.room(), s.Level+refill)), to
}

// see takes what a process knows of a state that was lost. It tells all rates that were leased at its time, so a later
// one adds what was leased since; each process's own is then replaced.
func (s *State) see(v View, now float64) {
	age := now - float64(v.At)
	if v.Born == 0 || float64(v.Born) == s.Born || age < 0 {
		return
	}
	if float64(v.At) > s.Reset {
		refilled := math.Floor((age*s.Rate - min(age, 2*Life)*float64(v.Out)) / Micro)
		s.Level = max(-s.Burst, min(s.Level, float64(v.Level)+refilled))
	}
	if at, out := float64(v.At), min(float64(v.Out), s.Rate); at > s.Told && age < Life {
		s.Unknown += max(0, out-s.ToldOut)
		s.Told, s.ToldOut = at, max(out, s.ToldOut)
	}
	s.Unknown = max(0, s.Unknown-float64(v.Rate))
}

// settle takes back the last lease of the sender, and debits what it owes.
func (s *State) settle(r Record, op Op) {
	age := s.Generation - r.Generation
	if r.Number > 0 && r.Born == s.Born && (age == 0 || age == 1) {
		i := int(age)
		spilt := max(0, min(float64(op.Spilt), r.Granted+r.Leased*4, s.Burst-max(s.Peak[0], s.Peak[i])))
		s.Level += spilt + max(0, min(float64(op.Back), r.Depth-float64(op.Have)))
		s.Peak[0] += spilt
		s.Peak[1] += spilt
		s.Leased[i] = max(0, s.Leased[i]-r.Leased)
		s.Depth[i] = max(0, s.Depth[i]-r.Depth)
	}
	due := float64(op.Owed) - max(float64(op.Acked), r.Owed)
	s.Level = max(-s.Burst, s.Level-max(0, due)*Micro)
}

// lease gives the sender a rate and units.
func (s *State) lease(r *Record, op Op, now float64) Answer {
	demand, have, procs := float64(op.Demand), float64(op.Have), max(1, float64(op.Procs))
	s.Demand[0] += math.Floor(demand * min(Life, float64(op.Span)) / Life)
	all := max(1, s.Demand[0], s.Demand[1])
	fair := s.Rate * demand / all
	if s.Demand[1] == 0 { // nothing is known of the others
		fair = min(fair, s.Rate/procs)
	}
	spare := max(0, s.Rate-s.out(now)-max(0, -s.Level)/4) // a debt is paid back in about a Life
	largest := float64(op.Most) * Micro
	rate := math.Floor(min(demand+math.Sqrt(demand*largest), fair, spare))
	depth := math.Floor(min(4*Micro, max(Micro, 0.25*s.Burst/procs), max(Micro, rate*4)))
	depth = max(depth, math.Floor(rate*min(1, 0.3*s.Burst/s.Rate)), largest)
	depth = min(depth, have+rate*4) // it fills no further in a Life
	if rate < 1 || s.Burst < 2*Micro*procs || s.Depth[0]+s.Depth[1]+max(depth, have) > 0.75*s.Burst {
		rate, depth = 0, 0
	}
	s.Leased[0] += rate
	held, most := max(depth, have), s.Burst-s.Depth[0]-s.Depth[1]
	start := max(0, min(s.Level-max(0, most-held), held-have)) // the bucket that is leased starts with what Redis has no room for
	s.Level = min(s.Level, max(0, most-held))
	want := max(0, float64(op.Want)-start)
	units := s.units(op, want, rate, fair, procs)
	s.Level -= units
	granted := 0.0
	if units >= want { // for calls that wait: spent with the answer
		granted = want
	}
	held += units - granted
	units += start
	s.Depth[0] += held
	r.Leased, r.Depth, r.Granted = rate, held, granted
	next := float64(Life)
	if spare := s.Rate - s.out(now); spare > s.Rate/20 { // processes ask in turn for the rate that is not leased
		turn := math.Floor(procs * max(Micro, units) / spare * s.Rate / all * Micro)
		next = min(Life, max(Life/4, turn))
	}
	return Answer{
		Rate: int64(rate), Depth: int64(depth), Units: int64(units), Held: int64(held), Next: int64(next),
		Born: int64(s.Born), At: int64(now), Level: int64(s.Level), Out: int64(s.out(now)),
	}
}

// units returns the millionths that the sender gets beside its rate.
func (s *State) units(op Op, want, rate, fair, procs float64) float64 {
	demand, free := float64(op.Demand), max(0, s.Level)
	if want == 0 && free < s.Burst/4 {
		return 0
	}
	need := max(want, float64(op.Wish), max(0, demand-rate)*4)
	horizon := min(1, 0.35*s.Burst/s.Rate)
	part := max(free/(2*procs), min(free, max(want, Micro, min(demand, fair)*horizon)))
	want = min(want, math.Floor(free))
	return want + math.Floor(max(0, min(need, part)-want)/Micro)*Micro // beside what is wanted, whole units
}

// TTL returns the ms for which the state is kept: until no lease counts, and the level is full.
func (s *State) TTL() int64 {
	return 2*Life/1000 + 1000 + int64(math.Ceil((s.Burst-s.Level)/s.Rate*1000))
}

// RecordTTL is the ms for which a record is kept.
const RecordTTL = 2*Life/1000 + 1000
