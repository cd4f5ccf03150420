package house

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// direct lists the modules that the root go.mod may require directly. All importers of the library get them. A module that only
// a benchmark, an end-to-end test or a comparison needs (the OTel SDK, gRPC, toxiproxy) therefore belongs in a nested module.
var direct = []string{
	redisClient, gobreaker, lru, xtime, xxhash,
	otel, otel + "/metric", otel + "/trace",
	miniredis, rapid, // tests
	gopherLua, // tests: redistest keeps the interpreters of miniredis, which requires it anyway
}

// goMod is the part of `go mod edit -json` that the check reads.
type goMod struct {
	Module  struct{ Path string }
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct{ Old struct{ Path string } }
	Tool    []struct{ Path string }
}

// readGoMod parses the text of a go.mod with the go command's own parser.
func readGoMod(t *testing.T, text []byte) goMod {
	t.Helper()
	file := filepath.Join(t.TempDir(), "go.mod")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "mod", "edit", "-json", file)
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var m goMod
	if err := json.Unmarshal(printed, &m); err != nil {
		t.Fatalf("go mod edit -json printed something else: %v", err)
	}
	return m
}

// checkGoMod returns one line for each directive of the root go.mod that users would inherit, and for each directive that
// changes the module here but not for them.
func checkGoMod(m goMod) []string {
	var bad []string
	if m.Module.Path != modulePath {
		bad = append(bad, fmt.Sprintf("go.mod: the module is %q, want %q", m.Module.Path, modulePath))
	}
	for _, r := range m.Require {
		if !r.Indirect && !slices.Contains(direct, r.Path) {
			bad = append(bad, fmt.Sprintf("go.mod: direct requirement %s is not an agreed one (internal/test/house/gomod_test.go)", r.Path))
		}
	}
	for _, r := range m.Replace {
		bad = append(bad, fmt.Sprintf("go.mod: replace %s has no effect for importers of the library", r.Old.Path))
	}
	for _, tool := range m.Tool {
		bad = append(bad, fmt.Sprintf("go.mod: tool %s puts its dependencies into every user's module graph", tool.Path))
	}
	return bad
}

func TestRootAsksForAgreedModulesOnly(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkGoMod(readGoMod(t, text)))
}

func TestUnagreedRequirementsAreReported(t *testing.T) {
	const text = `module github.com/hybridlimit/hybridlimit

go 1.26

require github.com/redis/go-redis/v9 v9.23.0

require (
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/sdk v1.47.0
	google.golang.org/grpc v1.80.0
	github.com/go-logr/logr v1.4.4 // indirect
)

replace golang.org/x/time => ../time

tool github.com/golangci/golangci-lint/v2/cmd/golangci-lint
`
	expect(t, checkGoMod(readGoMod(t, []byte(text))),
		"go.opentelemetry.io/otel/sdk", "google.golang.org/grpc", "replace golang.org/x/time", "tool github.com/golangci")
	expect(t, checkGoMod(readGoMod(t, []byte("module example.com/other\n"))), `"example.com/other"`)
}
