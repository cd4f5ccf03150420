package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// times is how often a failed test must pass alone.
const times = 3

// passesAlone runs one test again.
func passesAlone(dir string, flags []string, f failure) bool {
	flags = slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		return strings.HasPrefix(flag, "-run=") || strings.HasPrefix(flag, "-skip=")
	})
	args := append([]string{"test"}, flags...)
	args = append(args, "-count=1", "-run=^"+f.test+"$", f.pkg)
	for n := range times {
		fmt.Printf("\nagain, alone (%d of %d): %s\n", n+1, times, f)
		c := command(dir, args...)
		c.Stdout = os.Stdout
		if c.Run() != nil {
			return false
		}
	}
	return true
}
