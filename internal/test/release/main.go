// Release checks that the modules of this repository can be used by others, and prepares a release of them. It pushes
// nothing.
//
//	release check             make release-check: programs that use each module by its version, without a replace
//	release prepare v0.1.0    make release VERSION=v0.1.0: set the version in all modules, and print the tags
//
// Modules below internal/, bench/, deploy/ and examples/ are not released. Development uses go.work, so that the modules of
// a checkout use each other whatever their versions.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run is the program. The working directory is the root of the repository.
func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "check":
		return check(ctx, ".", out)
	case len(args) == 2 && args[0] == "prepare":
		return prepare(ctx, ".", args[1], out, gate)
	}
	return errors.New("usage: release check, or release prepare VERSION")
}

// gate runs the gate.
func gate(ctx context.Context, root string, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "bash", ".ci/run")
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf(".ci/run: %w", err)
	}
	return nil
}
