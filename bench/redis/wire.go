package main

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// wire counts what goes between clients and Redis: bytes each way, and
// messages, which are top-level commands, however many share a packet. It is a
// hook, since that is what every library that is built on go-redis lets in.
type wire struct{ sent, received, messages atomic.Int64 }

// traffic is what a wire has counted.
type traffic struct{ sent, received, messages int64 }

func (w *wire) traffic() traffic {
	return traffic{w.sent.Load(), w.received.Load(), w.messages.Load()}
}

func (t traffic) since(before traffic) traffic {
	return traffic{t.sent - before.sent, t.received - before.received, t.messages - before.messages}
}

// DialHook puts a counter into every new connection.
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

// requests finds the commands in a stream of RESP: arrays of bulk strings.
type requests struct {
	skip int    // bytes left of a bulk string and its end
	line []byte // the begin of a line whose end has not come yet
}

// count is how many commands begin in the next bytes of the stream.
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
			size, _ := strconv.Atoi(string(text[1:])) // an answer would have $-1, a request has not
			r.skip = size + len("\r\n")
		}
		r.line = r.line[:0]
	}
	return n
}
