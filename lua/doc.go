// Package lua holds the algorithms as one Lua library for Redis, and the codec
// of its batches. It has no Redis client and does no I/O: global runs what is
// encoded here.
//
// A batch is a list of ops in one slot: one call, one reading of Redis's
// clock, many keys. An [Op] pays what a process owes on a key, asks for units,
// and asks for a lease. With an envelope a batch is applied exactly once
// however often it is sent; without one it is sent once. The .lua files say in
// their headers what KEYS, ARGV and the reply are, when keys expire, and where
// the algorithm comes from.
package lua
