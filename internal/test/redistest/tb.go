package redistest

import "time"

// TB has the methods of a test that this package needs. *testing.T, *testing.B, *testing.F and *rapid.T implement it.
// testing.TB is not used for two reasons: types outside package testing, such as rapid's, cannot implement it, and the
// import of testing would be in every program that uses [Start].
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// pollEvery is much shorter than a scheduler's time slice. It is much longer than the cost of a polled condition (a
// mutex, or one round trip on loopback).
const pollEvery = time.Millisecond

// Eventually polls cond until it holds, and fails the test if it does not hold within the given time. what completes
// the sentence "did not happen: ...". Give a generous time: a loaded machine is slow, and only a failing test uses all
// of it. Eventually works in a synctest bubble too, in virtual time.
func Eventually(tb TB, within time.Duration, what string, cond func() bool) {
	tb.Helper()
	if !poll(within, cond) {
		tb.Fatalf("did not happen within %s: %s", within, what)
	}
}

// poll calls cond until it returns true, and reports whether it did so within the given time. cond runs at least once,
// and once more after the last wait.
func poll(within time.Duration, cond func() bool) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(pollEvery) {
		if cond() {
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
	}
}
