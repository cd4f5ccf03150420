package redistest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// memPipe returns the two ends of an in-memory connection whose writes never wait. net.Pipe is not suitable, because
// its writes wait until the other side has read them. A client that writes a pipeline longer than the server's 4 KiB
// read buffer and a server that flushes a reply per command would wait for each other.
//
// The ends have the semantics of TCP on which clients depend. Data sent before Close is still readable on the other
// side, and io.EOF follows. Close with SetLinger(0) resets instead. The ends start no goroutine, and a deadline is one
// timer, so they work in a synctest bubble.
func memPipe() (client, server *memConn) {
	up, down := newStream(), newStream()
	return &memConn{in: down, out: up, local: "client"}, &memConn{in: up, out: down, local: "server"}
}

// memConn is one end: it reads from one stream and writes to the other.
type memConn struct {
	in, out *stream
	local   memAddr

	mu            sync.Mutex
	closed        bool
	reset         bool // Close resets, after SetLinger(0)
	writeDeadline time.Time
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return "mem:" + string(a) }

func (c *memConn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	if err != nil && !errors.Is(err, io.EOF) { // as net does: io.EOF is never wrapped
		err = c.fail("read", err)
	}
	return n, err
}

func (c *memConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	closed, deadline := c.closed, c.writeDeadline
	c.mu.Unlock()
	if closed {
		return 0, c.fail("write", net.ErrClosed)
	}
	// A write never waits, so it needs no timer: the deadline has passed or not.
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return 0, c.fail("write", os.ErrDeadlineExceeded)
	}
	if err := c.out.write(p); err != nil {
		return 0, c.fail("write", err)
	}
	return len(p), nil
}

// Close ends both directions. A second call has no effect and returns an error, as in net.
func (c *memConn) Close() error {
	c.mu.Lock()
	closed, reset := c.closed, c.reset
	c.closed = true
	c.mu.Unlock()
	if closed {
		return c.fail("close", net.ErrClosed)
	}
	c.out.end(reset)
	c.in.close()
	return nil
}

// CloseWrite ends the outgoing direction: the other side reads the sent data, then io.EOF.
func (c *memConn) CloseWrite() error {
	c.out.end(false)
	return nil
}

// SetLinger with 0 does the same as on a *net.TCPConn: Close then resets the connection. The other side's next Read
// gives ECONNRESET (and io.EOF from then on), even with unread data. Other values restore the usual Close.
func (c *memConn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset = sec == 0
	return nil
}

func (c *memConn) LocalAddr() net.Addr { return c.local }

func (c *memConn) RemoteAddr() net.Addr {
	if c.local == "client" {
		return memAddr("server")
	}
	return memAddr("client")
}

func (c *memConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	if !c.in.setDeadline(t) {
		return c.fail("set", net.ErrClosed)
	}
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	c.writeDeadline = t
	return nil
}

// fail wraps an error as net does. Clients distinguish a time-out from a loss by the wrapping.
func (c *memConn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "mem", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// stream is one direction: an unbounded buffer with one reading end.
type stream struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     bytes.Buffer
	ended   error // set by the writing end: the reader's error after the data
	closed  bool  // set by the reading end
	expired bool  // the read deadline has passed
	timer   *time.Timer
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

// end closes the writing end: the reader gets io.EOF after the data, or a reset in place of the data.
func (s *stream) end(reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset {
		s.ended = syscall.ECONNRESET
		s.buf.Reset()
	} else if s.ended == nil {
		s.ended = io.EOF
	}
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
	d := time.Until(t)
	s.expired = !t.IsZero() && d <= 0
	if d > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.timer == timer { // not replaced while it fired
				s.expired = true
				s.changed.Broadcast()
			}
		})
		s.timer = timer
	}
	s.changed.Broadcast()
	return true
}

func (s *stream) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
