// Package gate decides one request under several limits, for the adapters of HTTP and gRPC. It asks the limiters
// together or in turn, returns units after a denial, waits for places in queues, sorts errors by their cause, and logs
// failures. It knows no protocol.
package gate
