// Package rivals has adapters for the rate limiters that Go programs use, and for those of this library, with one small
// interface. So all measurements measure the same calls: the time of a decision (bench/compare), or the cost for Redis.
//
// Each adapter makes the rival's cheapest call that answers "may key proceed?", in a plain loop. It adds only the code
// that a user of that library must write, for instance a map from keys to limiters. If a rival cannot express a limit
// exactly, its adapter documents this.
//
// A new rival is one more value in [All], or in [AllInFlight] if it limits calls in
// flight. The tests run for all of them.
package rivals
