package redistest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that starts it ends, so that a test binary that panics,
// times out or is killed leaves no server behind.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isStopped reports whether a signal has stopped the process. It is true if the state is unreadable, so that no caller
// waits for it.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// "pid (name) state ...", where the name may hold spaces and parentheses.
	_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	return len(rest) == 0 || rest[0] == 'T'
}
