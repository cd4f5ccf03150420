package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// server is the Redis of the run: a child process, so that killing it is what
// it would be in production. Connections break, memory is gone.
//
// The embedded one is miniredis, a Redis written in Go, in a process of this
// program. A redis-server is watched over by such a process: it ends it, and
// removes its directory, when the parent is gone.
type server struct {
	addr  string
	real  bool // redis-server
	child *child
	up    bool
}

// The ports to choose from lie below those that systems give to outgoing
// connections: one of those, aimed at the dead server, could otherwise take its
// port, and be connected to itself.
const firstPort, ports = 20000, 12000

func startServer(real bool) (*server, error) {
	var err error
	for range 20 {
		s := &server{real: real, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(ports)))}
		if err = s.start(); err == nil {
			return s, nil
		}
		if !errors.Is(err, errPort) {
			break
		}
	}
	return nil, err
}

var (
	errPort = errors.New("the port is taken")
	errDied = errors.New("redis-server ended by itself")
)

// start runs a server on the address, empty, and returns when it answers.
func (s *server) start() error {
	role := roleEmbedded
	if s.real {
		role = roleRedisServer
	}
	c, err := startChild(role, s.addr)
	if err != nil {
		return err
	}
	line, _ := bufio.NewReader(c.out).ReadString('\n') // an error is a line that is too short
	if line = strings.TrimSpace(line); line != serverUp {
		c.end()
		if strings.Contains(line, "address already in use") {
			return fmt.Errorf("%s: %w", s.addr, errPort)
		}
		return fmt.Errorf("the Redis server did not start: %s", cmp.Or(line, "it says nothing"))
	}
	s.child, s.up = c, true
	return nil
}

// kill ends the server with SIGKILL and returns when it is gone.
func (s *server) kill() {
	s.up = false
	if s.real {
		s.child.end() // the watcher kills redis-server and waits for it
		return
	}
	s.child.kill()
}

const serverUp = "up"

// runEmbedded is the process of the embedded server. It ends with its stdin.
func runEmbedded(addr string) error {
	signal.Ignore(os.Interrupt) // the parent ends us
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(addr); err != nil {
		return err
	}
	m.ClockTTL(true) // keys expire as time passes, as in a real one
	fmt.Println(serverUp)
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// runRedisServer is the process that watches over a redis-server. It ends it
// when its own stdin ends.
func runRedisServer(addr string) error {
	signal.Ignore(os.Interrupt)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	probe, err := net.Listen("tcp", addr) // redis-server says only in its log that a port is taken
	if err != nil {
		return err
	}
	probe.Close()
	dir, err := os.MkdirTemp("", "quickstart-redis-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("redis-server", "--bind", host, "--port", port, "--dir", dir,
		"--save", "", "--appendonly", "no", "--logfile", "redis.log")
	if err := cmd.Start(); err != nil {
		return err
	}
	exited, over := make(chan struct{}), make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	go func() { io.Copy(io.Discard, os.Stdin); close(over) }()
	defer func() {
		cmd.Process.Kill()
		<-exited
	}()
	if err := answers(addr, 5*time.Second, exited); err != nil {
		return err
	}
	fmt.Println(serverUp)
	select {
	case <-over:
		return nil
	case <-exited:
	}
	select {
	case <-over: // a Ctrl-C, of which it heard before the parent did
		return nil
	case <-time.After(time.Second):
		return errDied
	}
}

// answers waits until a server at addr answers a PING.
func answers(addr string, patience time.Duration, exited <-chan struct{}) error {
	deadline := time.Now().Add(patience)
	for {
		err := ping(addr)
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return errDied
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+PONG") {
		err = fmt.Errorf("%s answers %q", addr, line)
	}
	return err
}
