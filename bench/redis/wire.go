package main

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// wire counts the traffic between clients and Redis: bytes in each direction, and messages. A message is a top-level
// command, even if several share a packet. It is a hook, because every library on top of go-redis accepts hooks.
type wire struct{ sent, received, messages atomic.Int64 }

// traffic has the counts of a wire.
type traffic struct{ sent, received, messages int64 }

func (w *wire) traffic() traffic {
	return traffic{w.sent.Load(), w.received.Load(), w.messages.Load()}
}

func (t traffic) since(before traffic) traffic {
	return traffic{t.sent - before.sent, t.received - before.received, t.messages - before.messages}
}

// DialHook adds a counter to every new connection.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c, wire: w}, nil
	}
}

// ProcessHook changes nothing.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type countedConn struct {
	net.Conn
	wire *wire
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
