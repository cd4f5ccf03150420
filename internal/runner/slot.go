package runner

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// message is a batch of ops, with the callers that wait for its answers.
//
// It is also the context of its commands. It has the values of its first caller's context and a deadline of its own. It
// ends when the answer is there, or when the last caller has left: the end of one caller's context concerns no other
// caller.
//
// The slot's lock guards it until it is sent. From then on ops, reply, err and alone belong to the goroutine that sends
// it, until ended is closed; then to its callers.
type message struct {
	first  context.Context // of the first caller; its values only
	strict bool            // its commands end at its deadline
	sent   bool            // guarded by the slot's lock
	stay   int             // number of callers that have not left; guarded by the slot's lock

	ops   []wire.Op // before it is sent, one for each caller; then, without those of callers that have left
	place []int     // of each caller: the index of its op; left: it left before m was sent

	sentAt   time.Time
	deadline time.Time             // of the commands
	over     atomic.Pointer[error] // nil: it has not ended
	ended    chan struct{}         // closed when it has ended

	reply wire.Reply
	err   error
	alone []outcome // of each op, if Redis refused the batch; else nil

	// Most messages have one op. These arrays save its allocations.
	oneOp    [1]wire.Op
	onePlace [1]int
	oneKey   [1]string
	args     [8]any // of the first command
}

const left = -1

// outcome is the reply to a batch of one op.
type outcome struct {
	reply wire.Reply
	err   error
}

func newMessage(ctx context.Context) *message {
	m := &message{first: ctx, ended: make(chan struct{})}
	m.ops, m.place = m.oneOp[:0], m.onePlace[:0]
	return m
}

// Deadline implements context.Context.
func (m *message) Deadline() (time.Time, bool) { return m.deadline, true }

// Done implements context.Context.
func (m *message) Done() <-chan struct{} { return m.ended }

// Err implements context.Context.
func (m *message) Err() error {
	if err := m.over.Load(); err != nil {
		return *err
	}
	return nil
}

// Value implements context.Context.
func (m *message) Value(key any) any { return m.first.Value(key) }

var early, late = context.Canceled, context.DeadlineExceeded

func (m *message) end() {
	err := &early
	if !time.Now().Before(m.deadline) {
		err = &late
	}
	if m.over.CompareAndSwap(nil, err) {
		close(m.ended)
	}
}

// add adds a caller with an op. It returns the caller's number, and false if the message is full.
func (m *message) add(op wire.Op) (int, bool) {
	if len(m.ops) == wire.MaxOps {
		return 0, false
	}
	caller := len(m.ops)
	m.ops, m.place = append(m.ops, op), append(m.place, caller)
	m.stay++
	return caller, true
}

// seal prepares m for its sender: it removes the ops of callers that have left, and sets the deadline. No op is added
// from then on.
func (m *message) seal(timeout time.Duration) {
	m.sent, m.sentAt = true, time.Now()
	m.deadline = m.sentAt.Add(timeout)
	n := 0
	for caller, place := range m.place {
		if place != left {
			m.ops[n], m.place[caller] = m.ops[place], n
			n++
		}
	}
	m.ops = m.ops[:n]
}

// answer returns the answer to a caller, and its time in µs of Redis time.
func (m *message) answer(caller int) (wire.Answer, int64, error) {
	got, at := outcome{m.reply, m.err}, m.place[caller]
	if m.alone != nil {
		got, at = m.alone[at], 0
	}
	if got.err != nil {
		return wire.Answer{}, 0, got.err
	}
	return got.reply.Answers[at], got.reply.Now, nil
}

// slot is the messages of one tag. One of them is in flight, and the others wait.
type slot struct {
	timeout time.Duration // of a message, from its sending
	breaker *circuit.Breaker
	mu      sync.Mutex // not held during I/O
	flight  *message   // the others wait for it; nil: none is in flight
	queue   []*message // in the order in which they will be sent
}

// join adds a caller to a message. It returns the caller's number, and whether the caller sends the message.
func (s *slot) join(ctx context.Context, op wire.Op) (m *message, caller int, send bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == nil {
		m = newMessage(ctx)
		caller, _ = m.add(op)
		m.seal(s.timeout)
		s.flight = m
		return m, caller, true
	}
	if n := len(s.queue); n > 0 {
		m = s.queue[n-1]
		if caller, ok := m.add(op); ok {
			return m, caller, false
		}
	}
	m = newMessage(ctx)
	caller, _ = m.add(op)
	s.queue = append(s.queue, m)
	return m, caller, false
}

// next puts the first waiting message in flight and returns it; nil: none waits. Call it with the lock held.
func (s *slot) next() *message {
	s.flight = nil
	if len(s.queue) > 0 {
		s.flight = s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		s.flight.seal(s.timeout)
	}
	return s.flight
}

// landed ends the flight of m. It returns the message to send now, or nil.
func (s *slot) landed(m *message) *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != m {
		return nil
	}
	return s.next()
}

// overtake ends the wait for the message in flight if it is late, and m still waits for it. It returns the message to
// send now, or nil, and the time after which m may call overtake again; 0: m has been sent.
func (s *slot) overtake(m *message) (now *message, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.sent {
		return nil, 0
	}
	if left := s.patience() - time.Since(s.flight.sentAt); left > 0 {
		return nil, left
	}
	if now = s.next(); m.sent {
		return now, 0
	}
	return now, s.patience()
}

// patience is the time after which a message in flight is late: its connection may be dead. So a dead connection delays
// the calls of its tag by a part of the time-out, and does not fail them.
func (s *slot) patience() time.Duration { return max(s.timeout/5, 1) }

// leave takes a caller off its message. If the message waits, the caller's op is not sent. If it has been sent and no
// caller is left, it ends. leave returns the message to send now, or nil.
func (s *slot) leave(m *message, caller int) *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.stay--
	if !m.sent {
		m.place[caller] = left
		if m.stay == 0 {
			s.queue = slices.DeleteFunc(s.queue, func(q *message) bool { return q == m })
		}
		return nil
	}
	if m.stay > 0 {
		return nil
	}
	m.end()
	if s.flight != m {
		return nil
	}
	return s.next()
}
