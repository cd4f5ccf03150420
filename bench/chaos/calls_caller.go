package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// caller is the runner's end of a process with calls in flight.
type caller struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr strings.Builder
	read   sync.WaitGroup
	ended  int64 // ns; 0: it runs

	mu    sync.Mutex // guards lines
	lines []string
}

// startCaller starts this program as a process that runs calls in flight.
func startCaller(s spec) (*caller, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	of, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c := &caller{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), callsEnv+"="+string(of))
	c.cmd.Stderr = &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.read.Go(func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.mu.Lock()
			c.lines = append(c.lines, s.Text())
			c.mu.Unlock()
		}
	})
	return c, nil
}

// kill ends the process with SIGKILL, and its calls with it.
func (c *caller) kill() {
	if c.ended == 0 {
		c.ended = time.Now().UnixNano()
		_ = c.cmd.Process.Kill()
		_ = c.wait()
	}
}

// stop lets the process end its calls, and waits for it.
func (c *caller) stop() error {
	if c.ended != 0 {
		return nil
	}
	c.in.Close()
	err := c.wait()
	c.ended = time.Now().UnixNano()
	return err
}

func (c *caller) wait() error {
	c.read.Wait()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("process %d with calls: %w\n%s", c.cmd.Process.Pid, err, c.stderr.String())
	}
	return nil
}

// spans returns the calls of the process until now.
func (c *caller) spans(proc int) ([]span, error) {
	c.mu.Lock()
	lines := slices.Clone(c.lines)
	c.mu.Unlock()
	end := c.ended
	if end == 0 {
		end = time.Now().UnixNano()
	}
	return spansOf(proc, lines, end)
}
