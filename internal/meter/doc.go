// Package meter holds what was admitted of a key against what its limit
// promises of a fleet: by how many units it was exceeded at worst.
//
// A meter is told every admission, in order, and refuses none. It is not the
// arithmetic of internal/algo, which decides: it has no debt that is forgiven,
// no leases, and counts ns, not µs.
package meter
