package redistest

import "time"

// TB is what this package asks of a test. *testing.T, *testing.B, *testing.F
// and *rapid.T all have it. It is not testing.TB because that one cannot be
// implemented outside package testing, which would put rapid out of reach, and
// importing testing would put it into every program that uses [Start].
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// pollEvery is short against a scheduler's time slice and long against the cost
// of the conditions polled (a mutex, or one round trip on loopback).
const pollEvery = time.Millisecond

// Eventually polls cond until it holds, and fails the test when it does not
// within the given time. what completes the sentence "did not happen: ...".
// Take a generous time: it is spent only by a failing test, and a loaded
// machine is slow. In a synctest bubble it works too, in virtual time.
func Eventually(tb TB, within time.Duration, what string, cond func() bool) {
	tb.Helper()
	if !poll(within, cond) {
		tb.Fatalf("did not happen within %s: %s", within, what)
	}
}

// poll reports whether cond came to hold within the given time. cond runs at
// least once, and once more after the last wait.
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
