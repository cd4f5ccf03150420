// Package clientkey makes the keys that a client's address, secret or name gives.
// The adapters of HTTP and gRPC share it, so that one client has one key in both.
package clientkey
