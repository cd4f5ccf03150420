package runner

import (
	"context"
	"sync/atomic"
	"time"

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

// age returns the time since m was sent.
func (m *message) age() time.Duration { return time.Since(m.sentAt) }

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
