package permits

// Lane is the way of one process to one tag: the keys with an op to send, and the message in flight. There is one at a
// time. K is the caller's name of a holding. The zero Lane has nothing to send.
type Lane[K any] struct {
	due      []K
	flying   bool
	number   int64 // of the last message
	after    int64 // of the last message with an answer
	epoch    int64
	answered int64 // ns; the time of the last answer
	held     int   // keys of which the process holds permits
}

const (
	// MaxOps is the most ops of a message.
	MaxOps = 64
	// recent is the time for which Redis must know the last message of a process that holds nothing. A process that is
	// often silent would else report a loss of long ago, and Redis would learn again.
	recent = 10 * second
	// forgets is the time after which a process does not tell a give-back again. A message names the one before for up
	// to recent after its answer, and so shows its loss. The give-back was sent before that answer, by the lag of the
	// replica and a round trip. The process tells it after another round trip and its next heartbeat. That is less than
	// 1.8 periods later, or the process was cut off. With a period of a second, 1.2 s are left for the lag and the trips.
	forgets = recent + 3*second
)

// Add makes an op of a key due.
func (l *Lane[K]) Add(k K) { l.due = append(l.due, k) }

// Due reports whether a message can be sent.
func (l *Lane[K]) Due() bool { return !l.flying && len(l.due) > 0 }

// Take begins a message, and returns its keys. The caller adds an op for each. A lost message is never sent again as it
// is: each attempt has a number of its own, so Redis applies none after its successor.
func (l *Lane[K]) Take(process string, period, now int64) (Message, []K) {
	n := min(MaxOps, len(l.due))
	keys := l.due[:n:n]
	l.due = append([]K(nil), l.due[n:]...)
	l.flying = true
	l.number++
	m := Message{Process: process, Number: l.number, Period: period / 1000}
	if l.held > 0 || now-l.answered < recent {
		m.After, m.Epoch = l.after, l.epoch
	}
	return m, keys
}

// Answered ends the message in flight. The caller has given each reply to its holding, so that no op is made of a
// holding without it; held is the sum of Heard.Held.
func (l *Lane[K]) Answered(m Message, a Answer, held int, now int64) {
	l.flying = false
	l.after, l.epoch, l.answered = m.Number, a.Epoch, now
	l.held += held
}

// Lost ends the message in flight without an answer. The caller has told each holding, and adds the keys again.
func (l *Lane[K]) Lost() { l.flying = false }

// Rename begins the messages of a new identity. The caller drops the answer to the message in flight, as if it were
// lost. It renames all holdings of the tag.
func (l *Lane[K]) Rename() { l.after, l.held = 0, 0 }
