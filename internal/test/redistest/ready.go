package redistest

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

var processID = regexp.MustCompile(`(?m)^process_id:(\d+)`)

// awaitReady waits until the server at addr answers and is the process p. Another process may have taken the port
// first, and may be a Redis as well.
func awaitReady(addr string, p *process, within time.Duration) error {
	var last error
	if poll(within, func() bool {
		if p.exited() {
			return true
		}
		var reply []byte
		if reply, last = askInfo(addr); last != nil {
			return false
		}
		// An error reply (-NOAUTH, if the arguments set a password) comes from a server that is ready, but it does not
		// contain the process id.
		id := processID.FindSubmatch(reply)
		if id == nil || string(id[1]) == strconv.Itoa(p.cmd.Process.Pid) {
			return true
		}
		last = fmt.Errorf("process %s holds the port: %w", id[1], syscall.EADDRINUSE)
		return false
	}) && !p.exited() {
		return nil
	}
	if p.exited() {
		return p.exitError()
	}
	return fmt.Errorf("redistest: redis-server at %s does not answer: %w", addr, last)
}

func askInfo(addr string) ([]byte, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("INFO server\r\n")); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(c))
}
