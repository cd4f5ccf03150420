// Package runner sends this module's messages to Redis. It wraps any redis.UniversalClient.
//
// A [Runner] sends each call once: go-redis would repeat a call whose reply was lost, and count it again. A call returns by
// its deadline, also where the client's ContextTimeoutEnabled is off. A script, or a function, that Redis does not know is
// loaded. A panic of go-redis is the error of the call.
//
// Connections that the client dials after [New] are guarded. A reply that is longer than Redis can give to the library's
// commands is an error before memory is allocated for it.
package runner
