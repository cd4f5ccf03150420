package hybrid_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	limiter, err := hybrid.New(rdb, hybridlimit.PerMinute(2), hybrid.Config{Name: "login"})
	if err != nil {
		panic(err)
	}
	defer limiter.Shutdown(context.Background())

	for range 3 {
		res, err := limiter.Allow(context.Background(), "alice")
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// standIn returns the address of an embedded Redis, so that the examples need
// no server.
func standIn() string {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	return m.Addr()
}

// TestReadmeProgram checks that the program on README's first screen is the
// body of Example, except for the address.
func TestReadmeProgram(t *testing.T) {
	readme := bodyOf(t, "../README.md", "func main() {\n")
	example := bodyOf(t, "example_test.go", "func Example() {\n")
	if want := strings.Replace(example, "standIn()", `"localhost:6379"`, 1); readme != want {
		t.Errorf("README's program is not the tested example:\n%s\nwant:\n%s", readme, want)
	}
}

// TestPackageCommentProgram checks that the program of the package comment is the body
// of Example, except for the address.
func TestPackageCommentProgram(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	example, _, _ := strings.Cut(bodyOf(t, "example_test.go", "func Example() {\n"), "\n\t// Output:")
	example = strings.Replace(example, "standIn()", `"localhost:6379"`, 1)
	var want strings.Builder
	for line := range strings.Lines(example + "\n") {
		want.WriteString("//" + line)
	}
	if !strings.Contains(string(comment), want.String()) {
		t.Errorf("doc.go has not the tested example:\n%s", want.String())
	}
}

func bodyOf(t *testing.T, file, head string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(regexp.QuoteMeta(head) + `(?s)(.*?)\n}\n`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no %q", file, head)
	}
	return string(m[1])
}
