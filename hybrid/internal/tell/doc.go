// Package tell has what a hub tells people: log lines, counts and metrics, spans, and the bound on lines about denials.
// It decides nothing.
package tell
