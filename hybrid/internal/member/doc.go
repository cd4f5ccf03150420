// Package member makes a process a member of its fleets: it sends the heartbeats, counts the other processes, hears the
// fleet's settings, and knows the clocks of Redis. It knows limiters only as parties.
package member
