package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// A heldPort is a port of 127.0.0.1 that the kernel does not count as free. It belongs to a bound socket that does not
// listen, so connections are refused. A server can still listen on it by its number if it sets SO_REUSEADDR, as
// redis-server and [net.Listen] do.
//
// Without it, a listener of another test could get the port of a killed server or of a proxy that refuses, and
// connections would succeed.
type heldPort struct {
	number int
	socket int // a descriptor
}

// hold holds a port, 0 for any free one. The error wraps EADDRINUSE if somebody else holds it or listens there.
func hold(port int) (*heldPort, error) {
	// A child that inherits the socket would hold the port for as long as it runs.
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, syscall.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("redistest: socket: %w", err)
	}
	h := &heldPort{socket: socket}
	if h.number, err = bind(socket, port); err != nil {
		h.release()
		return nil, fmt.Errorf("redistest: hold port %d: %w", port, err)
	}
	return h, nil
}

// bind binds a socket to a port of 127.0.0.1, and returns the port.
func bind(socket, port int) (int, error) {
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	// Only now, because a socket that has it can be bound beside another one that holds the port.
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	addr, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}

// release gives the port back. A second call does nothing.
func (h *heldPort) release() {
	if h.socket >= 0 {
		syscall.Close(h.socket)
		h.socket = -1
	}
}

// deafen makes new connections to a listener fail. Closing it is not enough: a child that another test is about to
// start has a copy of the socket until its exec, and the kernel accepts connections for that copy.
func deafen(l net.Listener) {
	if raw, err := l.(*net.TCPListener).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { syscall.Shutdown(int(fd), syscall.SHUT_RD) })
	}
	l.Close()
}

// dieWithParent makes the kernel kill the child when the thread that starts it ends, so that a test binary that panics,
// times out or is killed leaves no server behind.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isStopped reports whether a signal has stopped the process. It is true if the state is unreadable, so that no caller
// waits for it.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// "pid (name) state ...", where the name may hold spaces and parentheses.
	_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	return len(rest) == 0 || rest[0] == 'T'
}
