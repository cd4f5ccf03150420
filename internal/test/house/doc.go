// Package house has no code, only tests. They fail when the repository leaves its intended structure.
//
// The checks cover each package of the root module. Nested modules are not covered, except where stated:
//
//   - imports point one way. rules_test.go has the table. A package without a rule fails, so each new package is a
//     decision;
//   - test helpers stay out of product code;
//   - the root go.mod requires only the agreed modules, since each of them is also a dependency of every user;
//   - a program that imports only local has few modules in its go.sum;
//   - each package has a package comment, and each exported identifier of a product package has a doc comment;
//   - no file of a product package is longer than 500 lines;
//   - the arithmetic packages read no clock. The pure ones have no lock, log, network or goroutine either;
//   - the exported surface is that of testdata/surface.txt;
//   - a test that a page or a comment names exists (in any module);
//   - each decision record has a row in the index, with its status.
//
// Each check is a function over data, and has a test with bad input: a check that cannot fail proves nothing. Sources
// are read as files and not through `go list`, so that files behind build tags are included. The go command records
// which files a test opens, so a cached "ok" becomes invalid when these files change.
package house
