// Package rivals puts the rate limiters that Go programs use, and those of this
// library, behind one small interface, so that whoever measures them measures
// the same thing: what a decision takes (bench/compare), or what it costs Redis.
//
// Each adapter makes the rival's own cheapest call that answers "may key
// proceed?", in a plain loop: nothing stands between the loop and the call but
// what a user of that library has to write, a map from keys to limiters for
// instance. Where a rival cannot say a limit exactly, its adapter says so.
//
// A rival more is one value in [All]; its test is that of all of them.
package rivals
