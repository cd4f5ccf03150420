package redistest

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestHeldPort checks a port that is held: a server can listen on it, nobody else
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
			l.Close()
		}
	}
}

// TestHeldPortIsNotFree checks that the kernel gives a held port to nobody who asks
// for a free one. The choice is limited to that port.
func TestHeldPortIsNotFree(t *testing.T) {
	t.Parallel()
	const ipLocalPortRange = 51 // Linux 6.3
	for range 5 {               // another process may take a port at once after its release
		h, err := hold(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.release)
		choose := func() error {
			socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, syscall.IPPROTO_TCP)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(socket)
			if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
				t.Fatal(err)
			}
			if err := syscall.SetsockoptInt(socket, syscall.IPPROTO_IP, ipLocalPortRange, h.number<<16|h.number); err != nil {
				t.Skipf("SKIPPED: this kernel has no IP_LOCAL_PORT_RANGE: %v", err)
			}
			return syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		}
		if err := choose(); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("a held port was given away: %v", err)
		}
		h.release()
		if err = choose(); err == nil {
			return
		}
		t.Logf("after the release: %v", err)
	}
	t.Error("a port that is released does not become free")
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
