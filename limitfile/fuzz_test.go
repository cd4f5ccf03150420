package limitfile_test

import (
	"errors"
	"reflect"
	"regexp"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/limitfile"
)

// place begins each violation: the file and a line of it.
var place = regexp.MustCompile(`^limits\.json:[1-9][0-9]*(: .+)?$`)

// Parse returns a file or an error with a line. A file that parses is the same as its
// text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		full, "{}", "", "\ufeff{}", "{\"a\":{\"keys\":{\"\\u2028<&>\\u0000\":\"1/s\"}}}", `{"a":{"limit":"1/s","limit":"2/s"}}`,
		`{"a":{"plans":{"p":"1/1m30s burst 7 leaky queue"},"keys":{"x":"p","y":"10 per day leaky queue"}}}`,
		`[[[[[[[[[[]]]]]]]]]]`, "{\"a\":\n{\"mode\":1,\"fallback\":null,\"shadow\":\"\"}}", "{\"a\":{\"keys\":{\"\\ud800\":\"1/s\"}}}", "\xff", "\x00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := limitfile.Parse("limits.json", data)
		if err != nil {
			invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
			if !ok || file != nil {
				t.Fatalf("%v, %v", file, err)
			}
			for i, v := range invalid.Violations {
				if !place.MatchString(v.Field) && i < 100 {
					t.Errorf("%q names no line: %v", v.Field, err)
				}
			}
			return
		}
		again, err := limitfile.Parse("limits.json", []byte(file.String()))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !reflect.DeepEqual(file.Settings(), again.Settings()) || file.String() != again.String() {
			t.Errorf("%s became %s", file, again)
		}
		for _, l := range file.Limiters() {
			if !reflect.DeepEqual(file.Plans(l), again.Plans(l)) {
				t.Errorf("plans %v became %v", file.Plans(l), again.Plans(l))
			}
		}
	})
}
