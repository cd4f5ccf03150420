// Package e2e has tests with dependencies that the library does not have: parsers and libraries of other programs. It
// is its own module, so that these dependencies never reach importers of the library. It uses the library as a user
// does.
package e2e
