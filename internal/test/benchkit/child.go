package benchkit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// childEnds is the longest time for which Close waits for the output of a child that has ended.
const childEnds = time.Minute

// Child is this program in another process. Requests to it and its replies are JSON.
type Child struct {
	in  io.Closer
	cmd *exec.Cmd
	enc *json.Encoder
	dec *json.Decoder
}

// StartChild starts this program again, with the given arguments and with more variables in its environment. The child
// must end when its input ends, also if this process is killed.
func StartChild(ctx context.Context, env []string, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = childEnds
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bufio.NewReader(out))
	dec.DisallowUnknownFields() // so that a log line is not taken for a reply
	return &Child{in, cmd, json.NewEncoder(in), dec}, nil
}

// Send sends a request.
func (c *Child) Send(request any) error { return c.enc.Encode(request) }

// Receive reads a reply.
func (c *Child) Receive(reply any) error { return c.dec.Decode(reply) }

// Close ends the input of the child, and waits for its end.
func (c *Child) Close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// Signal sends a signal to the child.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }
