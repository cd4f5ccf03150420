// Package house holds no code, only tests: they fail when the repository stops being built the way it was meant to be.
//
// What is checked, over every package of the root module (nested modules are their own houses):
//
//   - imports point one way (rules_test.go has the table; a package that has no rule fails, so that a new one is a decision);
//   - test helpers stay out of product code;
//   - the root go.mod asks for the agreed modules only, since each one is every user's too;
//   - a program that imports only local has few modules in its go.sum;
//   - every package has a package comment, every exported identifier of a product package a doc comment;
//   - no file of a product package is longer than 500 lines;
//   - the arithmetic packages read no clock;
//   - a test that a page or a comment names exists (in any module).
//
// Each check is a function over data, and has a test that feeds it something bad: a check that cannot fail proves nothing.
// Sources are read as files rather than through `go list`: files behind build tags are seen too, and because the go command
// records which files a test opens, a cached "ok" cannot outlive the sources that it was about.
package house
