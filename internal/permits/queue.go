package permits

// Waiter is a call that waits for permits. The caller keeps it until Next, Denied or Leave has given it back.
type Waiter struct {
	N        int64 // permits
	Once     bool  // it is denied by the first answer that does not admit it; see Holding.Hurry
	Fallback bool  // it was admitted by the fallback
	Caller   any   // the shell's own

	told       bool // an op with it was answered
	asked      bool // it is in the op in flight
	in         bool // it waits
	prev, next *Waiter
}

// Told reports whether an answer has come that did not admit the call.
func (w *Waiter) Told() bool { return w.told }

// queue has the waiting calls, first come, first served.
type queue struct {
	first, last *Waiter
	need        int64 // the sum of their permits
	once        int   // calls with Once
	largest     int64 // most permits of a call, since the queue was empty
}

func (q *queue) add(w *Waiter) {
	w.prev, w.next, w.told, w.asked, w.in = q.last, nil, false, false, true
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.need += w.N
	if q.largest = max(q.largest, w.N); w.Once {
		q.once++
	}
}

func (q *queue) remove(w *Waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.in = nil, nil, false
	q.need -= w.N
	if w.Once {
		q.once--
	}
	if q.first == nil {
		q.largest = 0
	}
}

// ask marks the waiting calls as part of the op in flight.
func (q *queue) ask() {
	for w := q.last; w != nil && !w.asked; w = w.prev {
		w.asked = true
	}
}

// tell notes the answer to the op in flight. Calls that came after the op are not told.
func (q *queue) tell() {
	for w := q.first; w != nil && w.asked; w = w.next {
		w.told = true
	}
}

// unask takes the calls out of an op that got no answer.
func (q *queue) unask() {
	for w := q.first; w != nil; w = w.next {
		w.asked = w.told
	}
}
