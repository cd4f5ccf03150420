package redistest

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"
)

const (
	// bindPatience bounds the retries for a port that somebody else has: on systems that cannot hold one, or if the
	// test has a listener there.
	bindPatience = 5 * time.Second
	// freePortTries bounds the retries for a free port that another process took before the server could listen on it,
	// or whose bus port is not free.
	freePortTries = 100
)

// ports are the ports of a server, from its start to its Close.
type ports struct {
	main *heldPort
	bus  *heldPort // nil without
}

// onPorts holds a free port, and its bus port if wanted, and calls listen with the number. If another process was
// faster, it takes another port.
func onPorts(bus bool, listen func(port int) error) (ports, error) {
	for try := 1; ; try++ {
		main, err := hold(0)
		if err != nil {
			return ports{}, err
		}
		p, taken := ports{main: main}, false
		if bus {
			p.bus, err = hold(main.number + BusOffset)
			taken = err != nil
		}
		if err == nil {
			err = listen(main.number)
			taken = errors.Is(err, syscall.EADDRINUSE)
		}
		if err == nil {
			return p, nil
		}
		p.release()
		if !taken || try == freePortTries {
			return ports{}, err
		}
	}
}

// onHeld calls listen until nobody else has the port.
func onHeld(listen func() error) (err error) {
	poll(bindPatience, func() bool {
		err = listen()
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	return err
}

func (p ports) release() {
	p.main.release()
	if p.bus != nil {
		p.bus.release()
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
