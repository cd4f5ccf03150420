package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds waits that are long only in case of an error.
const patience = 30 * time.Second

// client is the runner's end of a worker process.
type client struct {
	history string // path
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  strings.Builder
	busy    sync.Mutex // held during an order
	killed  bool
	last    report // the last report of the worker
	heap    []uint64
}

// startClient starts this program as a worker and waits until its limiter is
// ready.
func startClient(s spec) (*client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &client{history: s.History, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), workerEnv+"=1")
	c.cmd.Stderr = &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := send(c.in, s); err != nil {
		return nil, c.fail(err)
	}
	if err := c.hear(); err != nil {
		return nil, c.fail(err)
	}
	return c, nil
}

func (c *client) hear() error {
	c.last = report{}
	if err := readLine(c.out, &c.last); err != nil {
		return err
	}
	if c.last.Err != "" {
		return errors.New(c.last.Err)
	}
	return nil
}

// tell gives an order and waits for the report.
func (c *client) tell(o order) (report, error) {
	c.busy.Lock()
	defer c.busy.Unlock()
	if c.killed {
		return c.last, errors.New("the client was killed")
	}
	if err := send(c.in, o); err != nil {
		return report{}, c.fail(err)
	}
	if err := c.hear(); err != nil {
		return c.last, fmt.Errorf("client %d: %s: %w%s", c.cmd.Process.Pid, o, err, c.stderrTail())
	}
	return c.last, nil
}

func (c *client) fail(err error) error {
	c.end()
	return fmt.Errorf("client: %w%s", err, c.stderrTail())
}

func (c *client) stderrTail() string {
	text := c.stderr.String()
	if text == "" {
		return ""
	}
	return "\n" + text[max(0, len(text)-4000):]
}

func (c *client) signal(s os.Signal) error { return c.cmd.Process.Signal(s) }
func (c *client) pause() error             { return c.signal(syscall.SIGSTOP) }
func (c *client) resume() error            { return c.signal(syscall.SIGCONT) }

// kill ends the client with SIGKILL, after it has asked for a last report.
func (c *client) kill() error {
	_, err := c.tell(orderStats)
	c.busy.Lock()
	defer c.busy.Unlock()
	c.killed = true
	c.cmd.Process.Kill()
	c.cmd.Wait()
	return err
}

// end closes the client, and kills it if it has not ended after two seconds.
func (c *client) end() {
	c.in.Close() // a worker ends when its input ends
	timer := time.AfterFunc(2*time.Second, func() { c.cmd.Process.Kill() })
	defer timer.Stop()
	c.cmd.Process.Signal(syscall.SIGCONT)
	c.cmd.Wait()
}
