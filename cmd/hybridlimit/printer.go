package main

import (
	"bytes"
	"encoding/json"
	"io"
)

// printer takes the answer of a command, as text and as a value for -json. It writes one of them at the end.
type printer struct {
	bytes.Buffer
	json  bool
	value any
}

// sets sets the value for -json.
func (p *printer) sets(v any) { p.value = v }

// flush writes the answer. A command that failed before it set a value has none.
func (p *printer) flush(w io.Writer) error {
	if !p.json {
		_, err := p.WriteTo(w)
		return err
	}
	if p.value == nil {
		return nil
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(p.value)
}
