package lua

import (
	"slices"
	"strings"
	"testing"
)

// TestAnotherTextHasOtherNames checks that two versions of a library can be in one Redis. A change of any part of the
// text gives other names to the library and to all of its functions. The same text keeps its names, so that a restart
// loads nothing new. TestLibrariesSideBySide runs two versions on Redis.
func TestAnotherTextHasOtherNames(t *testing.T) {
	text := []function{{"take", "local units = 1\n", "return units\n"}, {"tell", "local units = 2\n", "return units\n"}}
	name, source := buildLibrary(text...)
	if again, same := buildLibrary(slices.Clone(text)...); again != name || same != source {
		t.Errorf("the same text is %s and then %s", name, again)
	}
	for i := range text {
		for part, change := range map[string]func(*function){
			"the name of a function": func(f *function) { f.name += "s" },
			"its definitions":        func(f *function) { f.library += "-- changed\n" },
			"its body":               func(f *function) { f.body = "-- changed\n" + f.body },
		} {
			changed := slices.Clone(text)
			change(&changed[i])
			other, source := buildLibrary(changed...)
			if other == name {
				t.Errorf("with another text of function %d (%s), the library still is %s", i, part, name)
			}
			if n := strings.Count(source, "'"+other+"_"); n != len(text) || strings.Contains(source, name) {
				t.Errorf("with another text of function %d (%s), %d of %d functions have the new name", i, part, n, len(text))
			}
		}
	}
}
