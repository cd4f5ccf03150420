// Package fleet runs a whole fleet of real limiters, with the real scripts, on one Redis in virtual time, from one
// seed. A [Scenario] describes the calls and the faults. A [Report] has the results.
//
// Each process is a hub with its own network link, inside a testing/synctest bubble. Redis is miniredis. Virtual time
// costs nothing, so twenty seconds of a hundred processes take a few seconds of real time. Two runs of one scenario
// differ only in the order of events at the same instant, and in the random choices of the limiters: the time of the
// next look at a denial that lasts for seconds, and the time for which a breaker stays open.
//
// Messages to Redis cost real time: about 0.3 ms each, because miniredis creates a Lua state for each message. A
// decision without a message costs some µs.
//
// [RunCalls] runs a fleet under a limit of calls in flight. A [CallScenario] describes the calls. A [CallReport] has the
// results. Its kinds without a hub need no bubble: their [Agenda] has no clock to wait for.
//
// The package is for tests and for the lab in bench/accuracy. The product does not import it.
package fleet
