//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing: only Linux kills a child with its parent. A test binary that is killed here leaves its
// server running.
func dieWithParent(*exec.Cmd) {}

// isStopped always returns true, because the state is not visible here. A request sent within microseconds of Pause may
// still be answered.
func isStopped(int) bool { return true }
