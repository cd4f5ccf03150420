// Package clock is the time of a hub: monotonic ns, and a coarse count of ticks, the epoch. The fast path compares
// epochs instead of reading a clock. The package also measures how late a process runs when it waits for a core.
package clock
