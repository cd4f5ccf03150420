package main

import (
	"fmt"
	"strings"
	"time"
)

// number is a count with its thousands set apart.
func number(n int64) string {
	s := fmt.Sprint(n)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// percent is n of all, rounded; what is there at all is never shown as nothing.
func percent(n, all int64) string {
	switch {
	case n == 0 || all == 0:
		return "·"
	case n*100 < all:
		return "<1"
	}
	return fmt.Sprint((n*100 + all/2) / all)
}

// perDecision is how many commands to Redis a decision took on average.
func perDecision(messages, decisions int64) string {
	if decisions == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", float64(messages)/float64(decisions))
}

// short is a duration in two or three digits.
func short(d time.Duration) string {
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}} {
		switch in := float64(d) / float64(u.size); {
		case in >= 9.95:
			return fmt.Sprintf("%.0f%s", in, u.name)
		case in >= 1:
			return fmt.Sprintf("%.1f%s", in, u.name)
		}
	}
	return fmt.Sprintf("%dns", d.Nanoseconds())
}

// list is "1", "1 and 3", or "1, 2 and 4".
func list(of []int) string {
	s := strings.ReplaceAll(strings.Trim(fmt.Sprint(of), "[]"), " ", ", ")
	if at := strings.LastIndex(s, ", "); at >= 0 {
		s = s[:at] + " and " + s[at+2:]
	}
	return s
}
