package main

import (
	"context"
	"net"
	"testing"
)

// A connection that was being made when Redis died, or when its process did, is
// none. It had escaped the reset, and its process went on with a dead Redis.
func TestNoConnectionEscapes(t *testing.T) {
	for name, happens := range map[string]func(*store, *link){
		"cut off": func(s *store, _ *link) { s.set(redisDead, 0) },
		"ended":   func(_ *store, l *link) { l.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(nil)
			defer s.close()
			l := newLink(s)
			ours, theirs := net.Pipe()
			l.to = func(context.Context) (net.Conn, error) {
				happens(s, l)
				return ours, nil
			}
			if _, err := l.dial(t.Context()); err == nil {
				t.Error("it is connected")
			}
			if len(l.all()) != 0 {
				t.Error("it counts as a connection")
			}
			if _, err := theirs.Read(make([]byte, 1)); err == nil {
				t.Error("the other side was not told")
			}
			if _, err := l.dial(t.Context()); err == nil {
				t.Error("it connects afterwards")
			}
		})
	}
}
