// Package provider is a lab of one provider and a fleet: a server that counts by its own window, a stranger who uses a
// part of it, and the fleet's clients, which keep to what is left in different ways. Time is virtual.
//
//	cd bench && go test ./provider -v
//
// It runs under go test because testing/synctest needs a test.
package provider
