// Package e2e has the tests that need more dependencies than the library: parsers,
// and the libraries of other programs. It is a module of its own, so that users of
// the library do not get these dependencies. It imports the library as a user does.
package e2e
