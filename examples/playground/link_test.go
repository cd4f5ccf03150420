package main

import (
	"context"
	"net"
	"testing"
)

// TestNoConnectionEscapes checks that a dial fails if Redis, or the process,
// dies during it. Such a connection once escaped the reset, and its process
// continued to use a dead Redis.
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
				t.Error("the dial succeeded")
			}
			if len(s.open(l)) != 0 {
				t.Error("the connection is registered")
			}
			if _, err := theirs.Read(make([]byte, 1)); err == nil {
				t.Error("the other side is still open")
			}
			if _, err := l.dial(t.Context()); err == nil {
				t.Error("a later dial succeeded")
			}
		})
	}
}
