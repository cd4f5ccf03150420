package benchkit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Between replaces the text between two lines of a page, and keeps the lines.
func Between(page, from, to, text string) (string, error) {
	head, rest, ok := strings.Cut(page, from)
	_, tail, closed := strings.Cut(rest, to)
	if !ok || !closed {
		return "", fmt.Errorf("benchkit: the page has no lines %q and %q", from, to)
	}
	return head + from + text + to + tail, nil
}

// Thousands formats 1234567 as 1 234 567, with any separator.
func Thousands(n int64, separator string) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + separator + s[i:]
	}
	return s
}

// Round rounds to a number of decimals, and never returns -0.
func Round(x float64, places int) float64 {
	scale := math.Pow(10, float64(places))
	return math.Round(x*scale)/scale + 0
}
