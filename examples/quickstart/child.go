package main

import (
	"io"
	"os"
	"os/exec"
	"time"
)

// The roles that this program plays in its child processes, named in an
// environment variable together with their argument.
const (
	roleVar         = "HYBRIDLIMIT_QUICKSTART_ROLE"
	argVar          = "HYBRIDLIMIT_QUICKSTART_ARG"
	roleWorker      = "worker"
	roleEmbedded    = "embedded"
	roleRedisServer = "redis-server"
)

// child is a child process. It ends by itself when its stdin ends, hence also
// when the parent is killed.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Reader
	exited chan struct{} // closed when it has ended
	err    error         // how it ended; after exited
}

func startChild(role, arg string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self), exited: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, argVar+"="+arg)
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe: Wait would close it before everything is read.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.out, c.cmd.Stdout = r, w
	err = c.cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// kill ends the child with SIGKILL and waits for it.
func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.exited
}

// end asks the child to end, and kills it if it does not.
func (c *child) end() {
	c.in.Close()
	select {
	case <-c.exited:
	case <-time.After(2 * time.Second):
		c.kill()
	}
}
