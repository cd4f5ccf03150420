// Package fleet runs whole fleets of real limiters, with the real scripts, on
// one Redis in virtual time, from one seed: a [Scenario] says who asks what
// and what fails, a [Report] what came of it.
//
// Processes are hubs of their own, each behind a link of its own, inside a
// testing/synctest bubble; Redis is miniredis. Time costs nothing there, so
// twenty seconds of a hundred processes take a few of real time, and two runs
// of one scenario differ at most in how ties at one instant fall, and in what
// the limiters draw themselves: when to look at a denial again after seconds,
// and for how long a breaker stays open.
//
// What does cost is Redis: about 0.3 ms of real time per message, since
// miniredis makes a Lua state for each. A decision without one costs some µs.
//
// It is for tests and for the lab in bench/accuracy. The product does not
// import it.
package fleet
