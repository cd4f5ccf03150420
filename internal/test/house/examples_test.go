package house

import (
	"fmt"
	"go/ast"
	"go/doc"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// examplesPerVerb is the least number of examples of a verb: one for its effect and one for its purpose.
const examplesPerVerb = 2

// undemonstrated lists the methods of limiters and Hub that need no examples of their own.
var undemonstrated = []string{
	"ConcurrencyLimiter.Allow", "ConcurrencyLimiter.AllowN", // no verbs of permits
	"Limiter.Allow",                                                                                // AllowN with a cost of 1: in nearly every example
	"Limiter.Close", "Hub.Close", "Limiter.Shutdown", "Hub.Shutdown", "Limiter.Ready", "Hub.Ready", // lifecycle, not verbs
}

// demonstrated lists further names that need examples, in the spelling of package doc. Methods that take a context or a limit
// need them anyway.
var demonstrated = map[string][]string{
	".":      {"ParseLimit", "Limit_MarshalText", "Limit_UnmarshalText"},
	"local":  {"Config_limitFor"},
	"global": {"Config_limitFor"},
	"hybrid": {"Config_limitFor", "Config_shadow", "NewHub"},
}

// limiters are the packages with verbs.
var limiters = []string{"local", "global", "hybrid"}

// checkExamples returns the names that have too few examples. An example counts if go test runs it, which means that it ends in
// an Output comment, and if its file is in package doc's view of the package.
func checkExamples(sources []source) []string {
	runs := map[string]map[string]int{} // by package and name, without suffixes
	want, promoted := map[string][]string{}, promotionsOf(sources)
	for dir, names := range demonstrated {
		want[dir] = slices.Clone(names)
	}
	for _, s := range sources {
		if !slices.Contains(limiters, s.dir) && s.dir != "." {
			continue
		}
		if s.test {
			if runs[s.dir] == nil {
				runs[s.dir] = map[string]int{}
			}
			for _, ex := range doc.Examples(s.tree) {
				if ex.Output != "" || ex.EmptyOutput {
					runs[s.dir][stem(ex.Name)]++
				}
			}
			continue
		}
		if s.dir == "." {
			continue
		}
		for _, decl := range s.tree.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok {
				for _, of := range promoted.receivers(s.dir, d) {
					if isVerb(of, d) {
						want[s.dir] = append(want[s.dir], of+"_"+d.Name.Name)
					}
				}
			}
		}
	}
	var bad []string
	for dir, names := range want {
		for _, name := range names {
			if n := runs[dir][name]; n < examplesPerVerb {
				bad = append(bad, fmt.Sprintf("%s: %d of %d examples of %s", dir, n, examplesPerVerb, name))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// stem returns an example's name without its suffix, which starts in lower case: Limiter_Peek for Limiter_Peek_quota. The
// example of a field of Config is an example of Config whose suffix starts with the field's name: Config_shadow_darkLaunch.
func stem(name string) string {
	parts := strings.Split(name, "_")
	n := 1
	if len(parts) > 1 && (ast.IsExported(parts[1]) || parts[0] == "Config") {
		n = 2
	}
	return strings.Join(parts[:n], "_")
}

// isVerb reports whether a method is an action of a limiter: a method of Limiter, ConcurrencyLimiter or Hub, exported, with a context or a limit.
func isVerb(of string, d *ast.FuncDecl) bool {
	if of != "Limiter" && of != "ConcurrencyLimiter" && of != "Hub" || !d.Name.IsExported() || slices.Contains(undemonstrated, of+"."+d.Name.Name) {
		return false
	}
	for _, p := range d.Type.Params.List {
		if sel, ok := p.Type.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Context" || sel.Sel.Name == "Limit") {
			return true
		}
	}
	return false
}

// receiver returns the type of a method's receiver; "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	return typeName(d.Recv.List[0].Type)
}

// Each verb is shown twice, in programs that go test runs.
func TestVerbsHaveExamples(t *testing.T) {
	for _, line := range checkExamples(loadModule(t)) {
		t.Error(line)
	}
}

func TestMissingExamplesAreFound(t *testing.T) {
	const limiter = "package local\n\nimport \"context\"\n\ntype Limiter struct{}\n\n" +
		"func (l *Limiter) Peek(ctx context.Context, key string) {}\nfunc (l *Limiter) Allow(ctx context.Context) {}\nfunc (l *Limiter) Len() int { return 0 }\n"
	const first = "package local_test\n\nfunc ExampleLimiter_Peek() {\n\t// Output: 1\n}\n"
	for name, tc := range map[string]struct {
		examples string
		missing  bool
	}{
		"none":          {"package local_test\n", true},
		"one":           {first, true},
		"two":           {first + "\nfunc ExampleLimiter_Peek_quota() {\n\t// Output: 2\n}\n", false},
		"one, one runs": {first + "\nfunc ExampleLimiter_Peek_quota() {\n}\n", true},
		"of another":    {first + "\nfunc ExampleLimiter_PeekN() {\n\t// Output: 2\n}\n", true},
	} {
		sources, err := load(fstest.MapFS{"local/l.go": {Data: []byte(limiter)}, "local/example_test.go": {Data: []byte(tc.examples)}})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, line := range checkExamples(sources) {
			found = found || strings.Contains(line, "Limiter_Peek")
			if strings.Contains(line, "Limiter_Allow") || strings.Contains(line, "Len") {
				t.Errorf("%s: %s", name, line)
			}
		}
		if found != tc.missing {
			t.Errorf("%s: found %v", name, found)
		}
	}
}
