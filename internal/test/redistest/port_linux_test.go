package redistest

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestHeldPort checks a port that is held: a server can listen on it, no other socket
// can hold it, and connections are refused while no server listens.
func TestHeldPort(t *testing.T) {
	t.Parallel()
	p, err := onPorts(true, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer p.release()
	for _, h := range []*heldPort{p.main, p.bus} {
		addr := loopback(h.number)
		for round := range 2 {
			if other, err := hold(h.number); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("round %d: another holds %s: %v, %v", round, addr, other, err)
			}
			if c, err := net.DialTimeout("tcp", addr, time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("round %d: a connection to %s: %v, %v", round, addr, c, err)
			}
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatalf("round %d: listen on %s: %v", round, addr, err)
			}
			c, err := net.DialTimeout("tcp", addr, time.Minute)
			if err != nil {
				t.Errorf("round %d: a listener on %s: %v", round, addr, err)
			} else {
				c.Close()
			}
			deafen(l)
		}
	}
}

// TestDeafListener checks that connections are refused although a copy of the socket is open,
// as in a child before its exec.
func TestDeafListener(t *testing.T) {
	t.Parallel()
	p, err := onPorts(false, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer p.release()
	l, err := net.Listen("tcp", loopback(p.main.number))
	if err != nil {
		t.Fatal(err)
	}
	twin, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	deafen(l)
	if c, err := net.DialTimeout("tcp", l.Addr().String(), time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection: %v, %v", c, err)
	}
}

// TestHeldPortIsNotFree checks that a listener that asks for a free port gets no held
// one. Without the sockets that hold them, listeners would get about 9 to 18 of these
// ports: by default the kernel chooses at random from 28 232, or from half of them.
func TestHeldPortIsNotFree(t *testing.T) {
	t.Parallel()
	held := map[int]bool{}
	for range 500 {
		h, err := hold(0)
		if err != nil {
			t.Fatal(err)
		}
		defer h.release()
		held[h.number] = true
	}
	for range 500 {
		l, err := net.Listen("tcp", loopback(0))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; held[port] {
			t.Errorf("the held port %d was given away", port)
		}
	}
}

// TestServerKeepsItsPort checks that the ports of a killed server stay its own until
// Close.
func TestServerKeepsItsPort(t *testing.T) {
	t.Parallel()
	s := New(t, WithBus())
	s.Kill()
	for _, port := range []int{s.Port(), s.Port() + BusOffset} {
		if _, err := hold(port); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("port %d of a killed server: %v", port, err)
		}
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if s.ports.main.socket >= 0 || s.ports.bus.socket >= 0 {
		t.Error("Close gave back no port")
	}
}
