package deploy

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// lint returns the problems of a Dockerfile.
func lint(text []byte) (problems []string, stages []instructions.Stage, err error) {
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	for _, w := range tree.Warnings {
		problems = append(problems, w.Short)
	}
	l := linter.New(&linter.Config{Warn: func(name, _, _, message string, _ []parser.Range) {
		problems = append(problems, name+": "+message)
	}})
	stages, _, err = instructions.Parse(tree.AST, l)
	return problems, stages, err
}

// TestDockerfile lints the Dockerfile. No Docker engine is needed, and none builds it here.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	problems, stages, err := lint(text)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %q", err, problems)
	}
	if n := len(stages); n != 2 || stages[1].BaseName != "scratch" {
		t.Fatalf("%d stages", n)
	}
	last := map[string]string{}
	for _, c := range stages[1].Commands {
		last[c.Name()] = strings.TrimSpace(strings.Join(strings.Fields(string(c.Name())), " "))
		switch c := c.(type) {
		case *instructions.UserCommand:
			last["USER"] = c.User
		case *instructions.EntrypointCommand:
			last["ENTRYPOINT"] = strings.Join(c.CmdLine, " ")
		}
	}
	if last["USER"] != "65532:65532" || last["ENTRYPOINT"] != "/hybridlimit-rls" {
		t.Errorf("%v", last)
	}
	if wrong, _, err := lint([]byte("from scratch\nENTRYPOINT /x\nMAINTAINER me\n")); err == nil && len(wrong) == 0 {
		t.Error("a wrong file has no problem")
	}
}
