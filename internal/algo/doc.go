// Package algo is the arithmetic of the algorithms in Go: pure functions of (state, now, operation), without a clock
// and without I/O. The Lua library in lua/ is the same arithmetic for Redis. A differential test compares the two.
//
// It counts in sub-units, integers that a float64 (and so a Lua number) represents exactly: with g = gcd(Rate, Period
// in µs), one unit is Period/g sub-units, and Rate/g sub-units come back each µs. hybridlimit.Limit.Validate refuses
// limits that leave the exact range.
//
// Words: a level is the number of sub-units left, and negative in debt. A lease is units debited in Redis that one
// process spends later. The ledger is Redis's record of leased units, by generation: 1, 2 or 4 seconds
// of Redis time. A view is the state of a key as a process last saw it.
package algo
