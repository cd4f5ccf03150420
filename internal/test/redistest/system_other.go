//go:build !linux

package redistest

import (
	"fmt"
	"net"
	"os/exec"
)

// A heldPort is a port of 127.0.0.1. Only Linux lets a server listen on a port that another socket is bound to. Here
// the port is free, and anyone can get it.
type heldPort struct{ number int }

// hold returns a port that is free at this moment if port is 0, else this port.
func hold(port int) (*heldPort, error) {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	defer l.Close()
	return &heldPort{l.Addr().(*net.TCPAddr).Port}, nil
}

func (h *heldPort) release() {}

// deafen closes a listener. Only Linux has a way to end a copy of its socket too.
func deafen(l net.Listener) { l.Close() }

// dieWithParent does nothing: only Linux kills a child with its parent. A test binary that is killed here leaves its
// server running.
func dieWithParent(*exec.Cmd) {}

// isStopped always returns true, because the state is not visible here. A request sent within microseconds of Pause may
// still be answered.
func isStopped(int) bool { return true }
