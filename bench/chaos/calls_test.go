package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// caller is a process with calls in flight.
type caller struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex
	lines []string
	read  sync.WaitGroup
	ended int64 // ns
}

func startCaller(t *testing.T, addr string) *caller {
	t.Helper()
	c := &caller{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), callsEnv+"="+addr)
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	c.read.Go(func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.mu.Lock()
			c.lines = append(c.lines, s.Text())
			c.mu.Unlock()
		}
	})
	return c
}

// kill ends the process as SIGKILL does. Its calls end then.
func (c *caller) kill() {
	if c.ended == 0 {
		c.ended = time.Now().UnixNano()
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		_ = c.cmd.Process.Kill()
		c.wait()
	}
}

// stop lets the process end its calls, and waits for it.
func (c *caller) stop(t *testing.T) {
	t.Helper()
	if c.ended == 0 {
		c.in.Close()
		if err := c.wait(); err != nil {
			t.Error(err)
		}
		c.ended = time.Now().UnixNano()
	}
}

func (c *caller) wait() error {
	c.read.Wait()
	return c.cmd.Wait()
}

func (c *caller) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}

// began returns the number of calls that a process has begun since a time, without those of the fallback.
func (c *caller) began(t *testing.T, since time.Time) (n int) {
	t.Helper()
	all, err := spansOf(0, c.said(), 0)
	if err != nil {
		t.Error(err)
	}
	for _, s := range all {
		if !s.fallback && s.begin >= since.UnixNano() {
			n++
		}
	}
	return n
}

// fleetOfCallers is three processes that run calls, and their Redis.
type fleetOfCallers struct {
	srv   *redistest.Server
	procs []*caller
}

// TestCallsInFlight plays faults on a fleet of real processes with real calls. More calls than permits never run, without those of
// the fallback, and those of a process from 1.8 s after the moment at which it was stopped.
func TestCallsInFlight(t *testing.T) {
	for _, fault := range []struct {
		name string
		play func(t *testing.T, f *fleetOfCallers) (cut func(span) span)
	}{
		{"no fault", func(*testing.T, *fleetOfCallers) func(span) span { time.Sleep(4 * time.Second); return nil }},
		{"SIGKILL", func(t *testing.T, f *fleetOfCallers) func(span) span {
			f.procs[0].kill()
			time.Sleep(5 * time.Second)
			return nil
		}},
		{"SIGSTOP for 5 s", func(t *testing.T, f *fleetOfCallers) func(span) span {
			_ = f.procs[0].cmd.Process.Signal(syscall.SIGSTOP)
			stopped := time.Now().UnixNano()
			time.Sleep(5 * time.Second)
			_ = f.procs[0].cmd.Process.Signal(syscall.SIGCONT)
			resumed := time.Now().UnixNano()
			time.Sleep(4 * time.Second)
			// Calls that ran in the meantime are the case that the guarantee names.
			return func(s span) span {
				if s.proc == 0 && s.begin < resumed+int64(20*time.Millisecond) && s.end > stopped {
					s.end = max(s.begin, stopped)
				}
				return s
			}
		}},
		{"FLUSHALL", func(t *testing.T, f *fleetOfCallers) func(span) span {
			f.srv.Client(t).FlushAll(context.Background())
			time.Sleep(6 * time.Second)
			return nil
		}},
		{"Redis killed for 4 s", func(t *testing.T, f *fleetOfCallers) func(span) span {
			f.srv.Kill()
			time.Sleep(4 * time.Second)
			if err := f.srv.Restart(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second)
			return nil
		}},
		{"fewer permits, then more", func(t *testing.T, f *fleetOfCallers) func(span) span {
			for _, n := range []string{"limit 5\n", "limit 12\n"} {
				for _, p := range f.procs {
					_, _ = io.WriteString(p.in, n)
				}
				time.Sleep(3 * time.Second)
			}
			return nil
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			f := &fleetOfCallers{srv: redistest.New(t)}
			for range callsProcs {
				f.procs = append(f.procs, startCaller(t, f.srv.Addr()))
			}
			start := time.Now()
			redistest.Eventually(t, 60*time.Second, "Redis grants permits to each process", func() bool {
				for _, p := range f.procs {
					if p.began(t, start) == 0 {
						return false
					}
				}
				return true
			})
			cut := fault.play(t, f)
			last := time.Now()
			redistest.Eventually(t, 60*time.Second, "each process runs calls again", func() bool {
				for _, p := range f.procs {
					if p.ended == 0 && p.began(t, last) == 0 {
						return false
					}
				}
				return true
			})
			var all []span
			for i, p := range f.procs {
				p.stop(t)
				spans, err := spansOf(i, p.said(), p.ended)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range spans {
					if cut != nil {
						s = cut(s)
					}
					all = append(all, s)
				}
			}
			most := mostAtOnce(all)
			t.Logf("%d calls, at most %d at once with %d permits", len(all), most, callsPermits)
			if most > callsPermits {
				t.Errorf("%d calls at once with %d permits", most, callsPermits)
			}
			if most < callsPermits-2 || len(all) < 100 {
				t.Errorf("%d calls, %d at once: too few to show anything", len(all), most)
			}
		})
	}
}
