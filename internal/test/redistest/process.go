package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one run of redis-server. Signals go through os.Process, which knows whether the child was reaped. So no
// signal can reach another process that was given the same pid.
type process struct {
	cmd     *exec.Cmd
	logPath string
	logFrom int64 // offset at which this run's part of the log begins
	gone    chan struct{}
}

// startProcess starts cmd with its output appended to a log file.
//
// The goroutine that starts the child stays locked to its thread until the child exits. If the kernel kills the child
// with its parent (see dieWithParent), the parent is the thread that forked, not the process. A child of an ordinary
// goroutine would be killed as soon as the runtime ends that thread.
func startProcess(cmd *exec.Cmd, logPath string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log // a file needs no copying goroutine
	dieWithParent(cmd)

	p := &process{cmd: cmd, logPath: logPath, logFrom: info.Size(), gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // the log has the reason for the exit
		}
		close(p.gone)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// exited reports whether there is no process any more.
func (p *process) exited() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	if p != nil {
		p.cmd.Process.Kill() // an error means that it has exited
		<-p.gone
	}
}

// logTail returns the end of this run's part of the log.
func (p *process) logTail() string {
	b, _ := os.ReadFile(p.logPath)
	b = b[min(int64(len(b)), p.logFrom):]
	return string(b[max(0, len(b)-2000):])
}

var errExited = errors.New("redistest: redis-server has exited")

// exitError returns errExited, with EADDRINUSE if the process exited because its port was taken.
func (p *process) exitError() error {
	if strings.Contains(p.logTail(), "Address already in use") {
		return fmt.Errorf("%w: %w", errExited, syscall.EADDRINUSE)
	}
	return errExited
}

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
