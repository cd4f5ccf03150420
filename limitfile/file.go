package limitfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// File is the valid content of a file. It does not change.
type File struct {
	name     string
	limiters map[string]*limiter
}

// limiter has the settings of one limiter.
type limiter struct {
	settings hybrid.Settings
	plans    map[string]hybridlimit.Limit
	planOf   map[string]string // by key, if the key refers to a plan
	line     int
	lines    map[string]int // of "limit", "mode" and "fallback", and of each key as "keys." and the key
}

// Name returns the name that Parse was given.
func (f *File) Name() string { return f.name }

// Limiters returns the names of the limiters in the file, sorted.
func (f *File) Limiters() []string { return slices.Sorted(maps.Keys(f.limiters)) }

// Settings returns the settings of all limiters, by name, for Hub.SetSettings. The maps are the caller's.
func (f *File) Settings() map[string]hybrid.Settings {
	all := make(map[string]hybrid.Settings, len(f.limiters))
	for name, l := range f.limiters {
		s := l.settings
		s.Keys = maps.Clone(s.Keys)
		all[name] = s
	}
	return all
}

// Plan returns a plan of a limiter. ok is false if the file has no such plan.
func (f *File) Plan(limiter, plan string) (limit hybridlimit.Limit, ok bool) {
	l, ok := f.limiters[limiter]
	if !ok {
		return limit, false
	}
	limit, ok = l.plans[plan]
	return limit, ok
}

// Plans returns all plans of a limiter, by name. The map is the caller's.
func (f *File) Plans(limiter string) map[string]hybridlimit.Limit {
	if l, ok := f.limiters[limiter]; ok {
		return maps.Clone(l.plans)
	}
	return nil
}

// entry is a limiter as JSON.
type entry struct {
	Limit    string            `json:"limit,omitempty"`
	Plans    map[string]string `json:"plans,omitempty"`
	Keys     map[string]string `json:"keys,omitempty"`
	Shadow   *bool             `json:"shadow,omitempty"`
	Mode     string            `json:"mode,omitempty"`
	Fallback string            `json:"fallback,omitempty"`
}

// String returns the content as JSON with sorted names. Parse reads it back, if it is no longer than MaxSize. Files
// with equal texts have equal settings and plans.
func (f *File) String() string {
	all := make(map[string]entry, len(f.limiters))
	for name, l := range f.limiters {
		s := l.settings
		e := entry{Plans: map[string]string{}, Keys: map[string]string{}, Shadow: s.Shadow}
		if s.Limit != (hybridlimit.Limit{}) {
			e.Limit = text(s.Limit)
		}
		for name, limit := range l.plans {
			e.Plans[name] = text(limit)
		}
		for key, limit := range s.Keys {
			if e.Keys[key] = l.planOf[key]; e.Keys[key] == "" {
				e.Keys[key] = text(limit)
			}
		}
		if s.Mode != nil {
			e.Mode = s.Mode.String()
		}
		if s.Fallback != nil {
			e.Fallback = s.Fallback.String()
		}
		all[name] = e
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(all) // texts always encode
	return b.String()
}

// text returns a valid limit in the form of ParseLimit.
func text(l hybridlimit.Limit) string {
	b, _ := l.MarshalText() // valid, because ParseLimit has returned it
	return string(b)
}

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
