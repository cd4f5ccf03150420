// Package ratelease is the protocol of leased rates: Redis gives each process a part of a limit's rate for some
// seconds, and the process admits calls from a bucket of that rate. So a key costs Redis at most about one op a process
// and second, however short its burst is.
//
// The package is pure. Hand is the process's side, for one key. State and Record are Redis's side: the Go twin of
// lua/rates.lua, for tests and the lab. Time is an argument: ns of a monotonic clock for a Hand, and µs of Redis's clock
// for a State. Amounts are millionths of a unit, and rates millionths of a unit per second.
//
// The rule that bounds a fleet: let L be the level in Redis, and each process i have tokens Tᵢ and a leased rate aᵢ. L
// grows with the rate less Σaᵢ, Tᵢ with aᵢ, so L + ΣTᵢ grows at most with the rate. Redis keeps L + ΣDᵢ ≤ Burst, where
// Dᵢ is the most that Tᵢ may be. So L + ΣTᵢ ≤ Burst, and each admitted unit takes one from it: a token bucket. A lease
// counts in Redis until the end of the generation after its own, and ends in the process before.
package ratelease
