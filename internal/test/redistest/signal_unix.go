//go:build unix

package redistest

import "syscall"

// The signals that pause and continue a process.
const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)
