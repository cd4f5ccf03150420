package main

import (
	"bytes"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// block is one ```go block of a page.
type block struct {
	page string
	line int
	text string
	// given has the parameters of the function around a fragment, from the comment above it: <!-- go: r *http.Request
	// -->. "return T" in it is the result type.
	given string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

var given = regexp.MustCompile(`^<!-- go: (.*) -->$`)

// blocks returns the Go blocks of a page.
func blocks(page, text string) (found []block) {
	before, b, in := "", block{}, false
	for n, line := range strings.Split(text, "\n") {
		switch {
		case !in && line == "```go":
			in, b = true, block{page: page, line: n + 1}
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
	"cmp": "cmp", "context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "slog": "log/slog",
	"http": "net/http", "netip": "net/netip", "os": "os", "signal": "os/signal", "strings": "strings",
	"syscall": "syscall", "time": "time", "url": "net/url",
	"hybridlimit": project, "local": project + "/local", "global": project + "/global", "hybrid": project + "/hybrid",
	"httplimit": project + "/httplimit", "clientkey": project + "/clientkey", "limittest": project + "/limittest", "grpclimit": project + "/grpclimit",
	"limitfile": project + "/limitfile", "shed": project + "/shed", "otellimit": project + "/otellimit",
	"debug": project + "/hybrid/debug", "spend": project + "/spend", "notice": project + "/notice",
	"grpc": "google.golang.org/grpc", "credentials": "google.golang.org/grpc/credentials",
	"errdetails": "google.golang.org/genproto/googleapis/rpc/errdetails",
	"durationpb": "google.golang.org/protobuf/types/known/durationpb", "connect": "connectrpc.com/connect",
	"metric": "go.opentelemetry.io/otel/metric", "redis": "github.com/redis/go-redis/v9", "rate": "golang.org/x/time/rate",
	"redis_rate": "github.com/go-redis/redis_rate/v10",
	"limiter":    "github.com/ulule/limiter/v3", "stdlib": "github.com/ulule/limiter/v3/drivers/middleware/stdlib",
	"sredis":    "github.com/ulule/limiter/v3/drivers/store/redis",
	"throttled": "github.com/throttled/throttled/v2", "goredisstore": "github.com/throttled/throttled/v2/store/goredisstore.v9",
	"gin": "github.com/gin-gonic/gin", "echo": "github.com/labstack/echo/v4", "chi": "github.com/go-chi/chi/v5",
	"fiber": "github.com/gofiber/fiber/v3",
}

const project = "github.com/hybridlimit/hybridlimit"

var qualified = regexp.MustCompile(`\b([a-z_]+)\.[A-Z]`)

// fragment reports whether b is a part of a file.
func (b block) fragment() bool { return !strings.HasPrefix(b.text, "package ") }

// program returns the file as which a block is checked.
func (b block) program() string {
	if !b.fragment() {
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
	fmt.Fprintln(&s, "package fragment")
	for _, name := range used {
		fmt.Fprintf(&s, "import %s %q\n", name, imports[name])
	}
	if strings.HasPrefix(b.text, "func ") || strings.HasPrefix(b.text, "// ") && strings.Contains(b.text, "\nfunc ") {
		return s.String() + b.text + "\n"
	}
	fmt.Fprintf(&s, "func _(%s) %s {\n%s\n", params, result, b.text)
	if result != "" {
		fmt.Fprintln(&s, "panic(0)")
	}
	fmt.Fprintln(&s, "}")
	return s.String()
}

// A fragment may end before it uses its variables, and may name a variable like a package.
var unused = regexp.MustCompile(`declared and not used|imported( as \w+)? and not used`)

// checkPages returns the number of blocks of the pages, and what is wrong with them. The module at dir has the packages
// that they import.
func checkPages(root, dir string) (n int, found []string, err error) {
	pages, err := fs.Glob(os.DirFS(root), "docs/*.md")
	if err != nil {
		return 0, nil, err
	}
	var all []block
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return 0, nil, err
		}
		all = append(all, blocks(page, string(text))...)
	}
	found, err = checkBlocks(root, dir, all)
	return len(all), found, err
}

// checkBlocks checks each block as a package of its own.
func checkBlocks(root, dir string, all []block) (found []string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	overlay := map[string][]byte{}
	byFolder := map[string]block{}
	var patterns []string
	for i, b := range all {
		folder := fmt.Sprintf("block%d", i)
		byFolder[folder] = b
		overlay[filepath.Join(dir, folder, "block.go")] = []byte(b.program())
		patterns = append(patterns, "./"+folder)
		if pretty, err := format.Source([]byte(b.text)); err != nil || !bytes.Equal(bytes.TrimSpace(pretty), bytes.TrimSpace([]byte(b.text))) {
			found = append(found, fmt.Sprintf("%s: not formatted (%v)", b, err))
		}
	}
	loaded, err := load(root, dir, overlay, patterns...)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, p := range loaded {
		folder := filepath.Base(strings.TrimSuffix(p.PkgPath, ".test"))
		b, ok := byFolder[folder]
		if !ok {
			return nil, fmt.Errorf("%s is no block", p.PkgPath)
		}
		seen[folder] = true
		for _, e := range p.Errors {
			if !b.fragment() || !unused.MatchString(e.Msg) {
				found = append(found, fmt.Sprintf("%s: %s", b, e.Msg))
			}
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		if !seen[folder] {
			found = append(found, fmt.Sprintf("%s: was not loaded", byFolder[folder]))
		}
	}
	return found, nil
}
