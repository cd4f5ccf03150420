// Package e2e holds tests that need what the library does not: parsers and other
// programs' libraries. It is a module of its own, so that they never reach those
// who import the library, and sees the library as a user does.
package e2e
