package main

import (
	"maps"
	"slices"
)

// suspicion are the holders of a key, and their last messages.
type suspicion struct {
	holders map[int]uint64
	since   float64
}

// look is the last heartbeat of another process, and the time at which this process saw it first.
type look struct{ beat, since float64 }

// beat sends a heartbeat after a time, and so on. One without an answer is sent again soon, because a process whose heartbeats are
// too old admits nothing new.
func (p *process) beat(d float64) {
	p.w.after(d, func() {
		p.later(func() {
			w, sent, tells := p.w, p.w.now, p.tells
			p.tells = 0
			answered := false
			next := w.period * (0.9 + 0.2*w.rnd.Float64())
			w.call(func() func() {
				losses := w.server.state.beat(p.id, w.server.clock(), tells)
				beats := w.server.state.look()
				return func() {
					p.later(func() {
						answered = true
						p.beaten(sent, losses, beats)
					})
				}
			})
			w.after(0.25*w.period, func() {
				p.later(func() {
					if !answered {
						p.tells += tells
						p.beat(0)
						return
					}
					p.beat(next - 0.25*w.period)
				})
			})
		})
	})
}

// beaten takes the answer to a heartbeat. After one that came too late, or a loss anywhere, all holdings are told again.
func (p *process) beaten(sent float64, losses int, beats map[int]float64) {
	if p.w.now >= p.lasts() {
		p.broken = true
	}
	if sent <= p.alive {
		return
	}
	for _, h := range p.holdings {
		p.excuse(h)
	}
	p.alive = sent
	p.claim(beats, sent)
	again := losses != p.losses && p.w.mutant != "tell"
	p.losses = losses
	if p.w.now >= p.lasts() {
		return
	}
	if p.broken {
		p.broken, again = false, true
		p.session++
	}
	if !again {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(p.holdings)) {
		if h := p.holdings[key]; h.booked > 0 || h.used > 0 {
			p.queue(h)
		}
	}
}

// claim takes the holdings of dead processes off the keys at which this process was refused. A holder is dead if its heartbeat has
// not changed for as long as a holding lives, on the clock of this process. Redis's clock has no part in it, so it may step.
func (p *process) claim(beats map[int]float64, sent float64) {
	before := p.looks
	p.looks = map[int]look{}
	for _, key := range slices.Sorted(maps.Keys(p.suspects)) {
		s, h := p.suspects[key], p.holding(key)
		if p.w.now > s.since+2*p.w.period {
			delete(p.suspects, key)
			continue
		}
		for proc, number := range s.holders {
			l, seen := before[proc]
			if !seen || l.beat != beats[proc] {
				l = look{beats[proc], p.w.now}
			}
			p.looks[proc] = l
			if sent-l.since < p.w.life() && p.w.mutant != "look" {
				continue
			}
			if h.claims == nil {
				h.claims = map[int]uint64{}
			}
			h.claims[proc] = number
		}
		if h.claims != nil {
			delete(p.suspects, key)
			p.queue(h)
		}
	}
}
