// Package algo is the arithmetic of the algorithms in Go: pure functions of
// (state, now, operation), no clock and no I/O. The Lua library in lua/ is the
// same arithmetic for Redis; a differential test holds the two together.
//
// Everything is counted in sub-units, integers that a float64 (and so a Lua
// number) holds exactly: with g = gcd(Rate, Period in µs), one unit is
// Period/g sub-units, and Rate/g of them come back each µs.
// hybridlimit.Limit.Validate refuses limits that leave the exact range.
package algo
