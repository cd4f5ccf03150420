package main

import (
	"fmt"
	"strconv"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// small formats a figure that may be large or nearly zero.
func small(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 0.01:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// micros formats ns as µs.
func micros(ns float64) string {
	if ns >= 100_000 {
		return benchkit.Whole(ns/1000) + " µs"
	}
	return plainMicros(ns) + " µs"
}

// plainMicros formats ns as µs, without the unit.
func plainMicros(ns float64) string {
	if ns >= 100_000 {
		return strconv.FormatInt(int64(ns/1000), 10)
	}
	return strconv.FormatFloat(float64(int64(ns))/1000, 'g', 3, 64)
}
