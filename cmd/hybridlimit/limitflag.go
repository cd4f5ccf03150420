package main

import (
	"errors"

	"github.com/hybridlimit/hybridlimit"
)

// limitFlag is the value of -limit.
type limitFlag struct {
	limit hybridlimit.Limit
	set   bool
	from  string // "": the flag itself; else where the limit is known from
}

// source says where a limit that is no argument is known from.
func (f *limitFlag) source() string {
	if f.from == "" {
		return ""
	}
	return " (the limit of " + f.from + ")"
}

// Set parses a limit.
func (f *limitFlag) Set(text string) (err error) {
	f.limit, err = hybridlimit.ParseLimit(text)
	if err == nil && f.limit.Algorithm == hybridlimit.AlgConcurrent {
		err = errors.New("must be the limit of a rate, such as 100/s: this command does not know limits of calls in flight")
	}
	f.set = err == nil
	return err
}

// String returns the limit, or "" if the flag is not set.
func (f *limitFlag) String() string {
	if !f.set {
		return ""
	}
	return f.limit.String()
}

// limitText returns a limit as text that -limit reads.
func limitText(limit hybridlimit.Limit) string {
	text, err := limit.MarshalText()
	if err != nil {
		return limit.String()
	}
	return string(text)
}
