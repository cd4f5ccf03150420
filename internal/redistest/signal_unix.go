//go:build unix

package redistest

import "syscall"

// The signals that pause a process and let it go on.
const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)
