package runner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

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
	if left := s.patience() - s.flight.age(); left > 0 {
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
