// Package runner sends this module's messages to Redis. It wraps any redis.UniversalClient.
//
// A [Runner] sends each call once: go-redis would repeat a call whose reply was lost, and count it again. A call
// returns by its deadline, even if the client's ContextTimeoutEnabled is off. The runner loads a script or function
// that Redis does not know. A panic of go-redis becomes the error of the call.
//
// Connections that the client dials after [New] are guarded. A reply that is longer than Redis can give to the
// library's commands is an error before memory is allocated for it.
package runner
