package redistest

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// stream is one direction: an unbounded buffer with one reading end.
type stream struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     bytes.Buffer
	ended   error // set by the writing end: the reader's error after the data
	closed  bool  // set by the reading end
	expired bool  // the read deadline has passed
	timer   *time.Timer
	timerID int // so that a timer which was replaced while firing has no effect
}

func newStream() *stream {
	s := new(stream)
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, net.ErrClosed
		case s.expired:
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case s.buf.Len() > 0:
			return s.buf.Read(p)
		case s.ended != nil:
			err := s.ended
			s.ended = io.EOF // Linux reports a reset once, and clients depend on it
			return 0, err
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ended != nil {
		return syscall.EPIPE
	}
	s.buf.Write(p)
	s.changed.Broadcast()
	return nil
}

// end closes the writing end: the reader gets io.EOF after the data.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = io.EOF
	}
	s.changed.Broadcast()
}

// abort closes the writing end and discards the data: the reader gets err.
func (s *stream) abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = err
	s.buf.Reset()
	s.changed.Broadcast()
}

// close closes the reading end.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.buf = bytes.Buffer{}
	s.stopTimer()
	s.changed.Broadcast()
}

// setDeadline sets the read deadline. It returns false if the reading end is closed. The deadline is a flag that a
// timer sets, not a comparison with the clock. With a comparison, a deadline without a monotonic reading might not have
// passed yet when its timer fires, and the reader would never wake again.
func (s *stream) setDeadline(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.stopTimer()
	s.expired = false
	if !t.IsZero() {
		if d := time.Until(t); d <= 0 {
			s.expired = true
		} else {
			id := s.timerID
			s.timer = time.AfterFunc(d, func() { s.expire(id) })
		}
	}
	s.changed.Broadcast()
	return true
}

func (s *stream) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.timerID++
}

func (s *stream) expire(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timerID == id {
		s.expired = true
		s.changed.Broadcast()
	}
}
