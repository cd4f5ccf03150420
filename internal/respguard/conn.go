package respguard

import (
	"fmt"
	"net"
	"syscall"
)

// Class is what a command may be told.
type Class int

// The classes of commands, by what Redis answers.
const (
	Short   Class = iota // little, and Rules.Short bounds it
	Map                  // where the nodes of a cluster are, or which commands there are
	Other                // whatever Redis has: the commands of others
	classes              // how many limits there are
	Stream               // more than one reply, for as long as the connection lives
)

// Rules say what a connection may be told.
type Rules struct {
	// Class is the class of a command, by the first 64 bytes of its first word,
	// which is its name, and of its second. It must not keep them.
	Class func(first, second []byte) Class
	// Limits is what a reply to a command of each class may hold.
	Limits [classes]Limits
	// Push is what a message may hold that no command asked for, on a connection
	// on which commands of others were sent. On any other it is what a reply of
	// class Short may hold.
	Push Limits
	// Err is wrapped by the error of what is refused.
	Err error
}

// Wrap returns conn with a guard. Its Read fails, from then on, before it passes
// on what the rules refuse; nothing else changes. One that has a guard is
// returned as it is.
func Wrap(conn net.Conn, rules *Rules) net.Conn {
	switch conn.(type) {
	case *guarded, *guardedSocket:
		return conn
	}
	g := &guarded{Conn: conn, rules: rules}
	if socket, ok := conn.(syscall.Conn); ok { // go-redis looks at an idle socket that it can see
		return &guardedSocket{guarded: g, Conn: socket}
	}
	return g
}

// guarded is a connection with a guard. One goroutine may read while another
// writes.
type guarded struct {
	net.Conn
	rules    *Rules
	requests requests
	replies  replies
	err      error // of Read, once something was refused
}

type guardedSocket struct {
	*guarded
	syscall.Conn
}

// NetConn returns the connection without its guard.
func (g *guarded) NetConn() net.Conn { return g.Conn }

// Write notes what is asked before it is sent.
func (g *guarded) Write(p []byte) (int, error) {
	g.requests.feed(p, g.rules.Class)
	return g.Conn.Write(p)
}

// Read reads what the rules let through.
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
