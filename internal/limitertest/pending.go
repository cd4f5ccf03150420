package limitertest

import (
	"fmt"
	"slices"
	"strings"
)

// pending lists the checks that limiters do not pass yet, by the package of the
// limiter.
var pending = map[string][]string{
	"global": {"cancel before others", "cancel in any order", "cancel late", "set limit in time"},
	"hybrid": {
		"cancel before others", "cancel in any order", "cancel late", "cancel after a border",
		"set limit in time", "limits in turn",
	},
}

// due reports whether the limiter does not pass a check yet.
func (s *subject) due(check string) bool {
	pkg, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", s.lim), "*"), ".")
	return slices.Contains(pending[pkg], check)
}
