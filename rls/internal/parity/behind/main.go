// Behind tells how many commits of envoyproxy/ratelimit came after the versions that are replayed and recorded.
//
//	go run ./internal/parity/behind -from CLONE
//
// Run it when the project has a new release, or before an issue about Envoy is resolved. If commits touch the paths, read
// them, and record again.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hybridlimit/hybridlimit/rls/internal/parity"
)

// paths are the directories of the service whose changes can change an answer or a test that is replayed.
var paths = []string{
	"src/config", "src/limiter", "src/provider", "src/redis", "src/service", "src/settings", "src/utils", "test/config", "test/integration", "test/service",
}

func main() {
	from := flag.String("from", "", "clone of envoyproxy/ratelimit")
	dir := flag.String("pin", filepath.Join("internal", "parity", "testdata"), "directory with PIN")
	flag.Parse()
	if err := run(*from, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "behind:", err)
		os.Exit(1)
	}
}

func run(clone, dir string) error {
	if clone == "" {
		return fmt.Errorf("-from is required")
	}
	pin, err := parity.ReadPin(dir)
	if err != nil {
		return err
	}
	for _, version := range []struct{ name, commit string }{{"replayed", parity.Replayed}, {"recorded", pin.Commit}} {
		all, err := count(clone, version.commit)
		if err != nil {
			return err
		}
		touching, err := count(clone, version.commit, paths...)
		if err != nil {
			return err
		}
		fmt.Printf("%s %.12s: %s commits behind; %s touch replayed paths\n", version.name, version.commit, all, touching)
	}
	return nil
}

// count returns the number of commits since another one.
func count(clone, since string, paths ...string) (string, error) {
	args := append([]string{"-C", clone, "rev-list", "--count", since + "..HEAD", "--"}, paths...)
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
