package redistest

import (
	"net"
	"syscall"
)

// deafen makes new connections to a listener fail. Closing it is not enough: a child that
// another test is about to start has a copy of the socket until its exec, and the kernel
// accepts connections for that copy.
func deafen(l net.Listener) {
	if raw, err := l.(*net.TCPListener).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { syscall.Shutdown(int(fd), syscall.SHUT_RD) })
	}
	l.Close()
}
