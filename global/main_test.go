package global_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs up to eight parallel tests at a time, if the command line names no other
// number. The suites on real servers sleep most of their time.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
