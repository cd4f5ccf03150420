//go:build unix

package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// hostile makes a configuration that cannot be used, in a directory that has a good file.
var hostile = map[string]func(t *testing.T, dir string){
	"a link to itself": func(t *testing.T, dir string) {
		must(t, os.Symlink(filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "bad.yaml")))
	},
	"a link to nothing": func(t *testing.T, dir string) { must(t, os.Symlink("/none", filepath.Join(dir, "bad.yaml"))) },
	"a pipe":            func(t *testing.T, dir string) { must(t, syscall.Mkfifo(filepath.Join(dir, "bad.yaml"), 0o600)) },
	"a device":          func(t *testing.T, dir string) { must(t, os.Symlink("/dev/zero", filepath.Join(dir, "bad.yaml"))) },
	"a file of 5 MiB": func(t *testing.T, dir string) {
		write(t, dir, "bad.yaml", strings.Repeat("# nothing\n", 5<<20/10))
	},
	"a sparse file of 1 TiB": func(t *testing.T, dir string) {
		write(t, dir, "bad.yaml", "")
		must(t, os.Truncate(filepath.Join(dir, "bad.yaml"), 1<<40))
	},
	"aliases of aliases": func(t *testing.T, dir string) {
		text := "domain: d\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
		for i := range 12 {
			text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
		}
		write(t, dir, "bad.yaml", text)
	},
	"deep": func(t *testing.T, dir string) {
		write(t, dir, "bad.yaml", "domain: d\ndescriptors: "+strings.Repeat("[", 200_000))
	},
	"not UTF-8": func(t *testing.T, dir string) { write(t, dir, "bad.yaml", "domain: \"\xff\xfe\"\n") },
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// No hostile configuration ends the server or its rules. Links in a loop and directories
// named *.yaml are no files.
func TestHostileFiles(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "config")
	must(t, os.Mkdir(dir, 0o700))
	write(t, dir, "a.yaml", someRules)
	must(t, os.Mkdir(filepath.Join(dir, "d.yaml"), 0o700))
	must(t, os.Symlink(dir, filepath.Join(dir, "loop")))
	r := start(t, "-config", dir)
	for name, spoil := range hostile {
		t.Run(name, func(t *testing.T) {
			before := strings.Count(r.log.String(), msgUnusable)
			valid := strings.Count(r.log.String(), msgValid)
			spoil(t, dir)
			redistest.Eventually(t, 30*time.Second, "the error is logged", func() bool { return strings.Count(r.log.String(), msgUnusable) > before })
			if got := r.ask("shop", 0, entry("user", "b")).GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); got != 5 {
				t.Errorf("the limit is %d", got)
			}
			must(t, os.Remove(filepath.Join(dir, "bad.yaml")))
			redistest.Eventually(t, 30*time.Second, "valid again", func() bool { return strings.Count(r.log.String(), msgValid) > valid })
		})
	}
	if n := len(r.log.String()); n > 64<<10 {
		t.Errorf("the log has %d bytes", n)
	}
}

func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range maxFiles + 1 {
		must(t, os.Symlink("/dev/null", filepath.Join(dir, fmt.Sprint(i, ".yaml"))))
	}
	if _, err := configFiles(dir); err == nil || !strings.Contains(err.Error(), "more than 10000 files") {
		t.Error(err)
	}
}

// A file that grows all the time is never read in part.
func TestGrowingFile(t *testing.T) {
	dir := write(t, t.TempDir(), "a.yaml", someRules)
	r := start(t, "-config", dir)
	f, err := os.OpenFile(filepath.Join(dir, "a.yaml"), os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer f.Close()
	for i := range 300 {
		_, err := fmt.Fprintf(f, "  - key: k%d\n    rate_limit: {unit: day, requests_per_unit: %d}\n", i, i+1)
		must(t, err)
		time.Sleep(3 * time.Millisecond)
	}
	redistest.Eventually(t, 30*time.Second, "the whole file", func() bool {
		return r.ask("shop", 0, entry("k299", "b")).GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == 300
	})
	if strings.Contains(r.log.String(), msgUnusable) {
		t.Error(r.log.String())
	}
}

const detailed = `
domain: shop
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: {unit: day, requests_per_unit: 1000000}
`

// series is a line of /metrics.
var series = regexp.MustCompile(`(?m)^[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\["\\n])*",?)*\})? \S+$`)

// TestLargeRequest sends a million empty descriptors in two bytes each. They would take fifty times as much memory.
func TestLargeRequest(t *testing.T) {
	for _, flag := range []string{"-reflection", "-rlqs"} {
		r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), flag)
		for n, want := range map[int]codes.Code{100_000: codes.InvalidArgument, 200_000: codes.ResourceExhausted, 1_000_000: codes.ResourceExhausted} {
			empty := make([]*ratelimit.RateLimitDescriptor, n)
			for i := range empty {
				empty[i] = &ratelimit.RateLimitDescriptor{}
			}
			_, err := r.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: empty})
			if status.Code(err) != want {
				t.Errorf("%s: %d descriptors: %v, want %v", flag, n, err, want)
			}
		}
	}
}
