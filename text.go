package hybridlimit

import (
	"encoding"
	"strconv"
)

var (
	_ encoding.TextMarshaler   = Limit{}
	_ encoding.TextUnmarshaler = (*Limit)(nil)
)

// MarshalText returns the limit as text that ParseLimit reads back: "100/s burst
// 200", "5/min sliding window", "100 concurrent", "unlimited". It omits defaults. JSON, YAML and
// flag.TextVar use it.
//
// An invalid limit has no text: the error is that of Validate. An optional field
// should be a pointer or, in JSON, have the option omitzero.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if l.Algorithm.stateless() {
		return []byte(l.Algorithm.String()), nil
	}
	if l.Algorithm == AlgConcurrent {
		return []byte(l.String()), nil
	}
	b := strconv.AppendInt(nil, l.Rate, 10)
	b = append(b, '/')
	b = append(b, periodText(l.Period)...)
	if l.Burst != 0 {
		b = append(b, " burst "...)
		b = strconv.AppendInt(b, l.Burst, 10)
	}
	if l.Algorithm != AlgTokenBucket {
		b = append(b, ' ')
		b = append(b, l.Algorithm.String()...)
	}
	return b, nil
}

// UnmarshalText reads a limit as ParseLimit does, with the same errors. On an
// error the limit keeps its value.
func (l *Limit) UnmarshalText(text []byte) error {
	read, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = read
	return nil
}
