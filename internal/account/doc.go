// Package account is the protocol of one key in one process. It has the units that the process holds of the key, the
// units that it admitted before Redis was told, the last answer of Redis, and the order in which these decide a call.
//
// The package is pure. Time is an argument, in ns of a monotonic clock. Redis's time is opaque. The package has no
// clock, lock, atomic operation, goroutine, log or network; internal/test/house checks that. Package hybrid is the
// shell: it keeps one Account per key behind a lock, and calls one method per event:
//
//	Begin                    before each event: takes back the budget of the fast path, drops ended leases
//	Call, Again, AtMost      a decision
//	Charge, Refund, Forget   units used or given back outside a decision
//	TimedOut                 a call that waited too long for Redis
//	DirectBegin, DirectEnd   a call that asks Redis outside the sync path
//	Send, Receive, GiveUp    a sync is sent, is answered, or is dropped for good
//	Adapt                    the key gets another limit
//	Resync                   Redis may have lost the key
//	Forgive                  units of the fallback that leave no debt
//	Load                     after each event: chooses the next budget of the fast path
//
// Each event returns its effect on the units (Books). Each decision returns its reason (Reason).
//
// The rules and their proofs are in docs/protocol.md. Levels are in sub-units (algo.Bucket.Unit of them are one unit).
// Everything else is in units.
package account
