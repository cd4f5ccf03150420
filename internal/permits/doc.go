// Package permits is the protocol of permits in one process of a fleet: limits on calls in flight.
//
// The package is pure. Time is an argument, in ns of a monotonic clock. It has no clock, lock, goroutine, log or network;
// internal/house checks that. The rules are in docs/decisions/0051-permits-by-membership.md.
package permits
