package main

import "maps"

// held are the holdings of one key.
type held struct {
	booked map[int]booking // by process
	total  int64
	scarce float64 // until
	learn  float64 // nothing is granted before
}

// booking is what one process holds, and the message that wrote it.
type booking struct {
	permits int64
	message uint64
}

func (h *held) clone() *held {
	c := *h
	c.booked = maps.Clone(h.booked)
	return &c
}

// set replaces the holding of a process.
func (h *held) set(proc int, permits int64, message uint64) {
	h.total += permits - h.booked[proc].permits
	if permits == 0 {
		delete(h.booked, proc)
		return
	}
	h.booked[proc] = booking{permits, message}
}

// hold replaces the holding of an op's process, and grants. gap reports that Redis has lost messages of the process.
func (st *state) hold(w *world, o op, message uint64, now float64, gap bool) reply {
	h := st.held[o.key]
	if h == nil {
		h = &held{booked: map[int]booking{}}
		st.held[o.key] = h
	}
	b, there := h.booked[o.proc]
	lost := o.had > 0 && !there && !o.rejoins || gap
	if lost && w.mutant != "learn" {
		h.learn = max(h.learn, now+3*w.period)
	}
	for proc, number := range o.claims {
		if h.booked[proc].message == number && proc != o.proc {
			h.set(proc, 0, 0)
		}
	}
	keep := o.keep // of a process that admits nothing now: its running calls
	others := h.total - b.permits
	r := reply{keep: keep, usable: max(0, min(keep, w.permits-others)), lost: lost}
	if now >= max(st.learn, h.learn) || w.mutant == "learn" {
		r.granted = grant(o, w.permits-others-keep, w.rules.procs)
	}
	if r.granted < o.want {
		h.scarce = now + 1
		r.holders = map[int]uint64{}
		for proc, b := range h.booked {
			if proc != o.proc {
				r.holders[proc] = b.message
			}
		}
	}
	r.free = w.permits - others - keep - r.granted
	r.scarce = now < h.scarce
	h.set(o.proc, keep+r.granted, message)
	if len(h.booked) == 0 && now >= max(h.scarce, h.learn) {
		delete(st.held, o.key)
	}
	return r
}

// beat notes a heartbeat. It returns the number of losses that processes have told of.
func (st *state) beat(proc int, now float64, losses int) int {
	st.beats[proc] = now
	st.losses += losses
	return st.losses
}

// look returns the last heartbeats.
func (st *state) look() map[int]float64 { return maps.Clone(st.beats) }
