package main

import (
	"os"
	"testing"
)

// TestMain makes the test binary a worker if a run started it as one.
func TestMain(m *testing.M) {
	isWorker()
	os.Exit(m.Run())
}
