//go:build !unix

package redistest

import "syscall"

// These signals do not exist, because no signal pauses a process on these systems. Pause and Resume return the error of
// os.Process.Signal.
const (
	stopSignal     = syscall.Signal(-1)
	continueSignal = syscall.Signal(-1)
)
