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
	// freePortTries bounds the retries for a free port that another process took before the server could listen on it.
	freePortTries = 5
	// pairTries bounds the retries for a free port whose bus port is free too.
	pairTries = 1000
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
		p, err := holdPorts(bus)
		if err != nil {
			return ports{}, err
		}
		err = listen(p.main.number)
		if err == nil {
			return p, nil
		}
		p.release()
		if try == freePortTries || !errors.Is(err, syscall.EADDRINUSE) {
			return ports{}, err
		}
	}
}

func holdPorts(bus bool) (ports, error) {
	for try := 1; ; try++ {
		main, err := hold(0)
		if err != nil {
			return ports{}, err
		}
		if !bus {
			return ports{main: main}, nil
		}
		second, err := hold(main.number + BusOffset)
		if err == nil {
			return ports{main, second}, nil
		}
		main.release()
		if try == pairTries {
			return ports{}, err
		}
	}
}

func (p ports) release() {
	p.main.release()
	if p.bus != nil {
		p.bus.release()
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
