// Package meter compares the admissions of a key with the promise that its limit makes for a fleet. The result is the
// largest excess in units.
//
// A meter receives each admission, in order, and refuses none. It does not use the arithmetic of internal/algo, which
// decides. A meter forgives no debt, has no leases, and counts ns instead of µs.
package meter
