//go:build !unix

package redistest

import "syscall"

// Where no signal pauses a process, these are none that exists: Pause and
// Resume return the error of os.Process.Signal.
const (
	stopSignal     = syscall.Signal(-1)
	continueSignal = syscall.Signal(-1)
)
