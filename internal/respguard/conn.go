package respguard

import (
	"fmt"
	"net"
	"syscall"
)

// Class is the class of a command, by the size of its replies.
type Class int

// The classes of commands, by their replies.
const (
	Short   Class = iota // short
	Map                  // the map of a cluster's nodes, or the table of commands
	Other                // of any size: commands of other users of the client
	classes              // the number of classes with limits
	Stream               // more than one reply, until the connection ends
)

// Rules bound the replies of a connection.
type Rules struct {
	// Class returns the class of a command. Its arguments are the first 64 bytes of the command's first word, the name,
	// and of its second word. It must not keep them.
	Class func(first, second []byte) Class
	// Limits bounds a reply to a command, by class.
	Limits [classes]Limits
	// Push bounds a push message, which answers no command, on a connection that has sent a command of class Other. On
	// other connections Limits[Short] bounds it.
	Push Limits
	// Err is wrapped by the error of a refused reply.
	Err error
}

// Wrap returns conn with a guard. Read fails before it passes on a reply that the rules refuse, and always fails from
// then on. Nothing else changes. A connection with a guard is returned unchanged.
func Wrap(conn net.Conn, rules *Rules) net.Conn {
	switch conn.(type) {
	case *guarded, *guardedSocket:
		return conn
	}
	g := &guarded{Conn: conn, rules: rules}
	if socket, ok := conn.(syscall.Conn); ok { // go-redis checks an idle connection if it has a socket
		return &guardedSocket{guarded: g, Conn: socket}
	}
	return g
}

// guarded is a connection with a guard. One goroutine may read while another writes.
type guarded struct {
	net.Conn
	rules    *Rules
	requests requests
	replies  replies
	err      error // the error of Read after a refusal
}

type guardedSocket struct {
	*guarded
	syscall.Conn
}

// NetConn returns the connection without its guard.
func (g *guarded) NetConn() net.Conn { return g.Conn }

// Write follows the commands in p, then sends it.
func (g *guarded) Write(p []byte) (int, error) {
	g.requests.feed(p, g.rules.Class)
	return g.Conn.Write(p)
}

// Read reads bytes that the rules permit.
func (g *guarded) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(p)
	passed, bad := g.replies.feed(p[:n], g.limits)
	if bad != nil {
		clear(p[passed:n])
		g.err = fmt.Errorf("%w: %w", g.rules.Err, bad)
		return passed, g.err
	}
	return n, err
}

func (g *guarded) limits(push bool) *Limits {
	switch {
	case !push:
		return &g.rules.Limits[g.requests.class(g.replies.done)]
	case g.requests.shared():
		return &g.rules.Push
	default:
		return &g.rules.Limits[Short]
	}
}
