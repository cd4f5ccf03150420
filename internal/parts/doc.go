// Package parts has the arithmetic of split keys. A split key has k parts with states of their own, which may be on
// different servers of a cluster. Each process uses one part. The limits of the parts add up to the limit of the key.
//
// The package is pure: it reads no clock, draws no numbers and sends nothing.
package parts
