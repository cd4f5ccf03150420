package callfleet

import "time"

// renewEvery is the time between two renewals of a call: a third of the lease in bench/rivals.
const renewEvery = int64(10*time.Second) / 3

// sortedSet has the messages and the admissions of a sorted set in Redis: one message for each call, one for its end,
// and one for each renewal. The set decides at once, so no call waits for a place. The renewals of a call are counted
// at its end.
type sortedSet struct {
	w      *world
	places []int64 // taken, by key
}

func (x *sortedSet) acquire(c *call) {
	w := x.w
	w.ledger.sent(w.Now, 1)
	w.exchange(func() func() {
		if x.places[c.key] >= w.s.Limit {
			return func() { w.deny(c) }
		}
		x.places[c.key]++
		return func() { w.admit(c) }
	})
}

func (x *sortedSet) release(c *call) {
	x.w.ledger.sent(x.w.Now, 1)
	x.w.ledger.renewed(x.w.Now, c.lasts/renewEvery)
	x.w.exchange(func() func() {
		x.places[c.key]--
		return nil
	})
}

// central is one semaphore for each key, in one place. Its calls wait in order, and its messages take no time.
type central struct {
	w    *world
	keys []semaphore
}

type semaphore struct {
	taken   int64
	waiting []*call
}

func (x *central) acquire(c *call) {
	w, k := x.w, &x.keys[c.key]
	if k.taken < w.s.Limit {
		k.taken++
		w.admit(c)
		return
	}
	k.waiting = append(k.waiting, c)
	w.After(int64(w.s.Wait), func() {
		if !c.done { // all that came before are decided
			k.waiting = k.waiting[1:]
			w.deny(c)
		}
	})
}

func (x *central) release(c *call) {
	k := &x.keys[c.key]
	if len(k.waiting) == 0 {
		k.taken--
		return
	}
	first := k.waiting[0]
	k.waiting = k.waiting[1:]
	x.w.admit(first)
}
