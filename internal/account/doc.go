// Package account is the protocol of one key in one process: the units that the process holds of the key, the units that it
// admitted before Redis was told, the last answer of Redis, and the order in which a call is decided from these.
//
// It is pure. Time is an argument, in ns of a monotonic clock; Redis's time is opaque. It has no clock, lock, atomic
// operation, goroutine, log or network, and internal/house checks that. Package hybrid is the shell: it keeps one Account
// per key behind a lock, and calls one method per event:
//
//	Begin                    before each event: takes back the budget of the fast path, ends leases
//	Call, Again, AtMost      a decision
//	Charge, Refund, Forget   units used or given back outside a decision
//	TimedOut                 a call that waited too long for Redis
//	DirectBegin, DirectEnd   a call that asks Redis outside the sync path
//	Send, Receive, GiveUp    a sync leaves, is answered, or is dropped for good
//	Adapt                    the key gets another limit
//	Resync                   Redis may have lost the key
//	Forgive                  ends the debt of a fallback whose share has refilled
//	Load                     after each event: chooses the next budget of the fast path
//
// Each event returns its effect on the counters (Books). Each decision returns its reason (Reason).
//
// The rules and their proofs are in docs/protocol.md. Levels are in sub-units (algo.Bucket.Unit of them are a unit),
// everything else in units.
package account
