package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
)

// held makes the request hold its permits until its handler returns, or until its connection is closed if the handler
// takes it over (http.Hijacker). It returns the handler's writer, which is w unless its connection can be taken over.
// Call end when the handler has returned, also after a panic: then nobody may be left to close the connection, and the
// permits are released.
func held(w http.ResponseWriter, permits []hybridlimit.Permit) (own http.ResponseWriter, end func(panics bool)) {
	release := func() {
		for _, p := range permits {
			p.Release()
		}
	}
	if !hijackable(w) {
		return w, func(bool) { release() }
	}
	h := &hijackWriter{ResponseWriter: w, release: release}
	return h, func(panics bool) {
		if panics || !h.taken.Load() {
			release()
		}
	}
}

// hijackable reports whether a handler can take the connection over, as http.ResponseController would.
func hijackable(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

// hijackWriter is the ResponseWriter of a request that holds permits. It has the other methods of a connection of
// HTTP/1, so that handlers find them.
type hijackWriter struct {
	http.ResponseWriter
	release func()
	taken   atomic.Bool
}

// Unwrap is for http.ResponseController.
func (h *hijackWriter) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack implements http.Hijacker. The connection releases the permits.
func (h *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return conn, buf, err
	}
	h.taken.Store(true)
	return &heldConn{Conn: conn, release: h.release}, buf, nil
}

// Flush implements http.Flusher. A writer that cannot flush does nothing.
func (h *hijackWriter) Flush() { _ = h.FlushError() }

// FlushError is for http.ResponseController.
func (h *hijackWriter) FlushError() error {
	return http.NewResponseController(h.ResponseWriter).Flush()
}

// ReadFrom implements io.ReaderFrom, so that files are sent without a copy.
func (h *hijackWriter) ReadFrom(r io.Reader) (int64, error) { return io.Copy(h.ResponseWriter, r) }

// WriteString implements io.StringWriter.
func (h *hijackWriter) WriteString(s string) (int, error) {
	return io.WriteString(h.ResponseWriter, s)
}

// heldConn is a connection that holds permits until it is closed.
type heldConn struct {
	net.Conn
	release func()
}

// Close closes the connection and releases the permits.
func (c *heldConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// NetConn returns the connection below, as that of tls.Conn does. The permits stay held until Close.
func (c *heldConn) NetConn() net.Conn { return c.Conn }
