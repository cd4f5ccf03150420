package benchkit

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Wire counts the traffic between clients and Redis: bytes in each direction, and messages. A message is a top-level
// command, even if several share a packet. It is a hook, because every library on top of go-redis accepts hooks.
type Wire struct{ sent, received, messages atomic.Int64 }

// Traffic returns the messages so far, and the bytes to Redis and from it. They are 0 if w is nil.
func (w *Wire) Traffic() (messages, sent, received int64) {
	if w == nil {
		return 0, 0, 0
	}
	return w.messages.Load(), w.sent.Load(), w.received.Load()
}

// DialHook adds a counter to every new connection.
func (w *Wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c, wire: w}, nil
	}
}

// ProcessHook changes nothing.
func (w *Wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (w *Wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type countedConn struct {
	net.Conn
	wire *Wire
	req  requests
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wire.sent.Add(int64(n))
	c.wire.messages.Add(c.req.count(b[:n]))
	return n, err
}

// requests finds the commands in a RESP stream: arrays of bulk strings.
type requests struct {
	skip int    // remaining bytes of a bulk string and its line end
	line []byte // the begin of an incomplete line
}

// count returns the number of commands that begin in the next bytes of the stream.
func (r *requests) count(b []byte) (n int64) {
	for len(b) > 0 {
		if r.skip > 0 {
			some := min(r.skip, len(b))
			r.skip -= some
			b = b[some:]
			continue
		}
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		r.line = append(r.line, line...)
		if b = rest; !ended {
			return n
		}
		switch text := bytes.TrimSuffix(r.line, []byte{'\r'}); {
		case len(text) > 0 && text[0] == '*':
			n++
		case len(text) > 0 && text[0] == '$':
			size, _ := strconv.Atoi(string(text[1:])) // $-1 occurs only in answers
			r.skip = size + len("\r\n")
		}
		r.line = r.line[:0]
	}
	return n
}
