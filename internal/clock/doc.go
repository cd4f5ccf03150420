// Package clock is the time of a hub: monotonic ns, and a coarse epoch that the fast path compares instead of reading a
// clock. It also measures how late a process runs that waits for a core.
package clock
