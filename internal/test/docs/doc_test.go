// Package docs has the tests of the pages that no single package answers for: their figures, the tests and limits that they name.
package docs

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests in the root of the repository, because they read pages by their paths there.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
