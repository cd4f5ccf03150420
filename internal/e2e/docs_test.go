package e2e

import (
	"bytes"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is one ```go block of a page.
type block struct {
	page string
	line int
	text string
	// given has the parameters of the function around a fragment, from the
	// comment above it: <!-- go: r *http.Request -->. "return T" in it is the
	// result type.
	given string
}

var given = regexp.MustCompile(`^<!-- go: (.*) -->$`)

// blocks returns the Go blocks of a page.
func blocks(page, text string) (found []block) {
	before, b := "", block{}
	in := false
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		switch {
		case !in && line == "```go":
			in, b = true, block{page: page, line: n}
			if m := given.FindStringSubmatch(before); m != nil {
				b.given = m[1]
			}
		case in && line == "```":
			in = false
			found = append(found, b)
		case in:
			b.text += line + "\n"
		}
		if line != "" {
			before = line
		}
	}
	return found
}

// imports has the packages that a fragment may use.
var imports = map[string]string{
	"cmp": "cmp", "context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "slog": "log/slog", "http": "net/http", "netip": "net/netip",
	"os": "os", "signal": "os/signal", "strings": "strings", "syscall": "syscall", "time": "time",
	"hybridlimit": "github.com/hybridlimit/hybridlimit", "local": "github.com/hybridlimit/hybridlimit/local",
	"global": "github.com/hybridlimit/hybridlimit/global", "hybrid": "github.com/hybridlimit/hybridlimit/hybrid",
	"httplimit": "github.com/hybridlimit/hybridlimit/httplimit", "limittest": "github.com/hybridlimit/hybridlimit/limittest",
	"grpclimit": "github.com/hybridlimit/hybridlimit/grpclimit", "grpc": "google.golang.org/grpc", "credentials": "google.golang.org/grpc/credentials",
	"limitfile": "github.com/hybridlimit/hybridlimit/limitfile", "shed": "github.com/hybridlimit/hybridlimit/shed",
	"otellimit": "github.com/hybridlimit/hybridlimit/otellimit", "metric": "go.opentelemetry.io/otel/metric",
	"debug": "github.com/hybridlimit/hybridlimit/hybrid/debug",
	"redis": "github.com/redis/go-redis/v9", "rate": "golang.org/x/time/rate",
	"redis_rate": "github.com/go-redis/redis_rate/v10",
	"limiter":    "github.com/ulule/limiter/v3", "stdlib": "github.com/ulule/limiter/v3/drivers/middleware/stdlib",
	"sredis": "github.com/ulule/limiter/v3/drivers/store/redis",
	"url":    "net/url", "gin": "github.com/gin-gonic/gin", "echo": "github.com/labstack/echo/v4", "chi": "github.com/go-chi/chi/v5", "fiber": "github.com/gofiber/fiber/v3",
	"connect": "connectrpc.com/connect", "errdetails": "google.golang.org/genproto/googleapis/rpc/errdetails", "durationpb": "google.golang.org/protobuf/types/known/durationpb",
	"throttled": "github.com/throttled/throttled/v2", "goredisstore": "github.com/throttled/throttled/v2/store/goredisstore.v9",
}

var qualified = regexp.MustCompile(`\b([a-z_]+)\.[A-Z]`)

// program returns the file as which a block is compiled.
func (b block) program() string {
	if strings.HasPrefix(b.text, "package ") {
		return b.text
	}
	params, result, _ := strings.Cut(b.given, " return ")
	var used []string
	for _, m := range qualified.FindAllStringSubmatch(b.given+"\n"+b.text, -1) {
		if imports[m[1]] != "" && !slices.Contains(used, m[1]) {
			used = append(used, m[1])
		}
	}
	var s strings.Builder
	fmt.Fprintln(&s, "package fragment") // not main, so that nothing is linked
	for _, name := range used {
		fmt.Fprintf(&s, "import %s %q\n", name, imports[name])
	}
	body := b.text
	if strings.HasPrefix(b.text, "func ") || strings.HasPrefix(b.text, "// ") && strings.Contains(b.text, "\nfunc ") { // declarations
		fmt.Fprintf(&s, "%s\n", body)
	} else {
		fmt.Fprintf(&s, "func _(%s) %s {\n%s\n", params, result, body)
		if result != "" {
			fmt.Fprintln(&s, "panic(0)")
		}
		fmt.Fprintln(&s, "}")
	}
	return s.String()
}

// A fragment may end before it uses its variables, and may name a variable like
// a package.
var unused = regexp.MustCompile(`declared and not used|imported( as \w+)? and not used`)

// compile returns the compiler's errors for a block.
func compile(t *testing.T, b block) []string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(b.program()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "-o", filepath.Join(dir, "out"), file).CombinedOutput()
	if err == nil {
		return nil
	}
	var bad []string
	for line := range strings.Lines(string(out)) {
		fragment := !strings.HasPrefix(b.text, "package ")
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") && (!fragment || !unused.MatchString(line)) {
			bad = append(bad, line)
		}
	}
	return bad
}

// TestCodeInTheDocumentationCompiles checks that every Go block of README,
// CONTRIBUTING and the pages in docs compiles and is formatted.
func TestCodeInTheDocumentationCompiles(t *testing.T) {
	root := os.DirFS("../..")
	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := fs.ReadFile(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(page, string(text)) {
			n++
			t.Run(fmt.Sprintf("%s:%d", b.page, b.line), func(t *testing.T) {
				for _, line := range compile(t, b) {
					t.Error(line)
				}
				if pretty, err := format.Source([]byte(b.text)); err != nil || !bytes.Equal(bytes.TrimSpace(pretty), bytes.TrimSpace([]byte(b.text))) {
					t.Errorf("not formatted (%v):\n%s", err, pretty)
				}
			})
		}
	}
	if n == 0 {
		t.Error("there are no blocks")
	}
}

func TestWhatDoesNotCompileIsReported(t *testing.T) {
	page := "text\n\n<!-- go: r *http.Request -->\n\n```go\nx := r.NoSuchField\n```\n\n```go\nn := 1\n```\n\n```\nnot go\n```\n\n```go\nres, err := hybridlimit.Nothing()\n```\n"
	found := blocks("p.md", page)
	if len(found) != 3 || found[0].line != 5 || found[0].given == "" || found[1].given != "" {
		t.Fatalf("%+v", found)
	}
	for i, want := range []string{"NoSuchField", "", "hybridlimit.Nothing"} {
		bad := strings.Join(compile(t, found[i]), "\n")
		if want == "" && bad != "" || !strings.Contains(bad, want) {
			t.Errorf("block %d: %q", i, bad)
		}
	}
}
