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

// Ask sends a request to Serve, and reads the reply. It may be nil.
func (c *Child) Ask(request, reply any) error {
	a := answer{Reply: reply}
	if err := errors.Join(c.Send(request), c.Receive(&a)); err != nil || a.Err == "" {
		return err
	}
	return errors.New(a.Err)
}

// Close ends the input of the child, and waits for its end.
func (c *Child) Close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// Signal sends a signal to the child.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// answer is a reply, or an error.
type answer struct {
	Reply any
	Err   string
}

// Serve answers the requests of a parent until the input ends, which also ends the context of the request that is being
// answered. The input ends when the parent closes it or dies. Each request and each answer is a line of JSON.
func Serve[R any](ctx context.Context, in io.Reader, out io.Writer, do func(context.Context, R) (any, error)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	requests := make(chan R)
	go func() {
		for dec := json.NewDecoder(bufio.NewReader(in)); ; {
			var r R
			if err := dec.Decode(&r); err != nil {
				end(err)
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	for enc := json.NewEncoder(out); ; {
		select {
		case r := <-requests:
			reply, err := do(ctx, r)
			if ctx.Err() != nil {
				continue
			}
			a := answer{Reply: reply}
			if err != nil {
				a.Err = err.Error()
			}
			if err := enc.Encode(a); err != nil {
				return err
			}
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
}
