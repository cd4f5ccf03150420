package limitfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// refused returns the error of a hub that has refused the settings of a file. It has the lines of the file, if the
// error says which settings are wrong.
func (f *File) refused(err error) error {
	b := &builder{name: f.name}
	for _, e := range parts(err) {
		of, ok := errors.AsType[*hybrid.SettingsError](e)
		invalid, known := errors.AsType[*hybridlimit.InvalidError](e)
		l := (*limiter)(nil)
		if ok && known {
			l = f.limiters[of.Limiter]
		}
		if l == nil {
			return fmt.Errorf("limitfile: %s: the limiters refuse the settings: %w", f.name, err)
		}
		for _, v := range invalid.Violations {
			line, field := l.place(v.Field)
			b.add(line, under(of.Limiter, field), v.Value, v.Problem)
		}
	}
	return b.err()
}

// parts returns the errors that errors.Join has joined.
func parts(err error) []error {
	type joined interface {
		error
		Unwrap() []error
	}
	if all, ok := errors.AsType[joined](err); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// place returns the line and the name of a field of hybrid.Settings in the file.
func (l *limiter) place(field string) (line int, name string) {
	field, _ = strings.CutPrefix(field, "Settings.")
	if quoted, ok := strings.CutPrefix(field, "Keys["); ok {
		if prefix, err := strconv.QuotedPrefix(quoted); err == nil {
			key, _ := strconv.Unquote(prefix)
			return l.lines["keys."+key], under("keys", key)
		}
	}
	head, _, _ := strings.Cut(field, ".")
	name = strings.ToLower(head)
	if line, ok := l.lines[name]; ok {
		return line, name
	}
	return l.line, field
}
