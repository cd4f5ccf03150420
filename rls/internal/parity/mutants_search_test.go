//go:build search

package parity_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutants are errors in the service that TestParity must find.
var mutants = []struct{ name, file, old, new string }{
	{"a star only at the end", "internal/rules/find.go", "\t\tif fits(p.parts, text) {", "\t\tif p.parts[len(p.parts)-1] == \"\" && fits(p.parts, text) {"},
	{"quotas are never over", "answer.go", "return all > 0 && all == used", "return false"},
	{"all quotas, and those in shadow", "answer.go", "func (v *verdict) exceeded() bool { return v.over && !v.shadow }", "func (v *verdict) exceeded() bool { return v.over }"},
	{"a denial takes nothing from others", "decide.go", "if c.s.options.StrictCompat {", "if false {"},
	{"a cost above the rest is not booked", "decide.go", "\t\treturn c.takeRest(ctx, i)\n\t}\n\tres, err := p.limiter.Charge", "\t\treturn nil\n\t}\n\tres, err := p.limiter.Charge"},
	{"metadata of rules that deny", "answer.go", "v.state == asked && !v.exceeded()", "v.state == asked"},
	{"later metadata win", "answer.go", "case !there:", "case !there || have.GetStructValue() == nil:"},
	{"a shared star counts each value", "internal/rules/find.go", "if i < len(steps) && steps[i].shared() {", "if false {"},
}

// TestParityFindsMutants builds the service with an error each time.
func TestParityFindsMutants(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			name := filepath.Join(root, m.file)
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.old); n != 1 {
				t.Fatalf("%s has %q %d times", m.file, m.old, n)
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
			table, _ := json.Marshal(map[string]map[string]string{"Replace": {name: changed}})
			if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(overlay, table, 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay="+overlay, "-run=^TestParity$", ".").CombinedOutput()
			if err == nil {
				t.Errorf("no answer differs")
			} else if !strings.Contains(string(out), "--- FAIL: TestParity/") {
				t.Errorf("the test did not run:\n%s", out)
			}
		})
	}
}
