package testenv

import "time"

// OpenWindow returns a period whose window, counted from the Unix epoch, has at
// least half of itself left at now: per, or the shortest of per and some
// sixtieths of it. n is how many such periods make the window.
//
// A test of windows on a clock that is not its own, such as that of a real
// Redis, takes its period from here: else it fails when a window of the clock
// happens to end while it runs.
func OpenWindow(now time.Time, n int64, per time.Duration) time.Duration {
	for p := per; ; p += per / 60 {
		window := time.Duration(n) * p
		if time.Duration(now.UnixMicro()%window.Microseconds())*time.Microsecond <= window/2 {
			return p
		}
	}
}
