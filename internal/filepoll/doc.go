// Package filepoll looks at files that may change, and applies new content once it has
// settled: two reads, Settle apart, found the same. So a file that is written in parts
// is not applied in between, and neither its time nor its size matters.
package filepoll
