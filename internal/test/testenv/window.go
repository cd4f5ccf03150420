package testenv

import "time"

// OpenWindow returns a period whose window, counted from the Unix epoch, still has at least half of its length left at
// now. It returns per, or the shortest such period of per plus some sixtieths of per. The window is n periods long.
//
// A test of windows takes its period from here if it does not control the clock, for example with a real Redis.
// Otherwise it would fail if a window ended while the test runs.
func OpenWindow(now time.Time, n int64, per time.Duration) time.Duration {
	for p := per; ; p += per / 60 {
		window := time.Duration(n) * p
		if time.Duration(now.UnixMicro()%window.Microseconds())*time.Microsecond <= window/2 {
			return p
		}
	}
}
