package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/limitfile"
	"github.com/hybridlimit/hybridlimit/lua"
)

// check is the command check.
func check(*flag.FlagSet, *connection) job {
	var j job
	j.check = func(bad *adapter.Violations, args []string) {
		arguments(bad, args, 1, 1, "must be one file")
		if len(args) == 1 && slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(args[0]))) {
			bad.Add("FILE", args[0], "must be JSON; for YAML call yamllimit.Parse of limitfile/yamllimit, for example in a test")
		}
	}
	j.do = func(_ context.Context, args []string, out *printer) error {
		f, err := os.Open(args[0])
		if err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, limitfile.MaxSize+1))
		if err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		file, err := limitfile.Parse(args[0], data)
		if err != nil {
			return eachOnALine(err)
		}
		out.value = checkedOf(file)
		return describe(out, file)
	}
	return j
}

// eachOnALine returns an error with one line for each violation. Editors find file and line at its begin. The error
// does not match ErrInvalid: the arguments are valid.
func eachOnALine(err error) error {
	invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
	if !ok {
		return err
	}
	lines := make([]string, len(invalid.Violations))
	for i, v := range invalid.Violations {
		lines[i] = v.String()
	}
	return errors.New(strings.Join(lines, "\n"))
}

// checkAnswer is the answer of check for -json.
type checkAnswer struct {
	File     string                     `json:"file"`
	Limiters map[string]checkedSettings `json:"limiters"`
}

type checkedSettings struct {
	Limit    string                       `json:"limit,omitempty"` // as in Config without one
	Keys     map[string]hybridlimit.Limit `json:"keys,omitempty"`
	Shadow   *bool                        `json:"shadow,omitempty"`
	Mode     string                       `json:"mode,omitempty"`
	Fallback string                       `json:"fallback,omitempty"`
}

func checkedOf(file *limitfile.File) checkAnswer {
	of := checkAnswer{file.Name(), map[string]checkedSettings{}}
	for name, s := range file.Settings() {
		one := checkedSettings{Keys: s.Keys, Shadow: s.Shadow}
		if s.Limit != (hybridlimit.Limit{}) {
			one.Limit = limitText(s.Limit)
		}
		if s.Mode != nil {
			one.Mode = s.Mode.String()
		}
		if s.Fallback != nil {
			one.Fallback = s.Fallback.String()
		}
		of.Limiters[name] = one
	}
	return of
}

// describe prints the settings of a file as the limiters understand them.
func describe(out io.Writer, file *limitfile.File) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	all := file.Settings()
	keys := 0
	for _, name := range file.Limiters() {
		s, plans := all[name], file.Plans(name)
		keys += len(s.Keys)
		fmt.Fprintln(w, name)
		row := func(field, value string) { fmt.Fprintf(w, "  %s\t%s\n", field, value) }
		if s.Limit == (hybridlimit.Limit{}) {
			row("limit", "as in Config")
		} else {
			row("limit", s.Limit.String())
		}
		for _, plan := range slices.Sorted(maps.Keys(plans)) {
			row("plan "+plan, plans[plan].String())
		}
		for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
			row(fmt.Sprintf("key %q", key), s.Keys[key].String())
		}
		if s.Shadow != nil {
			row("shadow", map[bool]string{true: "true: no call is denied", false: "false"}[*s.Shadow])
		}
		if s.Mode != nil {
			row("mode", s.Mode.String())
		}
		if s.Fallback != nil {
			row("fallback", fmt.Sprintf("%v: without Redis, %s", *s.Fallback, fallback.Kind(*s.Fallback).Admits()))
		}
	}
	fmt.Fprintf(w, "%s is valid; limiters: %d, keys with a limit of their own: %d\n", file.Name(), len(all), keys)
	return w.Flush()
}

// completion is the command completion.
func completion(*flag.FlagSet, *connection) job {
	var j job
	j.check = func(bad *adapter.Violations, args []string) {
		arguments(bad, args, 1, 1, "must be bash or zsh")
		if len(args) == 1 {
			bad.AddIf(args[0] != "bash" && args[0] != "zsh", "SHELL", args[0], "must be bash or zsh")
		}
	}
	j.do = func(_ context.Context, args []string, out *printer) error {
		script := completionOf(args[0])
		out.value = map[string]string{"script": script}
		fmt.Fprint(out, script)
		return nil
	}
	return j
}

// words returns what may follow a command: its flags, and the texts that it knows.
func (c command) words() []string {
	fs, online := flag.NewFlagSet("", flag.ContinueOnError), flag.NewFlagSet("", flag.ContinueOnError)
	if !c.offline {
		online = fs
	}
	c.prepare(fs, addConnection(online, ""))
	words := []string{"-json"}
	fs.VisitAll(func(f *flag.Flag) { words = append(words, "-"+f.Name) })
	switch c.name {
	case "switch":
		for s := hybrid.SwitchNormal; s <= hybrid.SwitchDenyAll; s++ {
			words = append(words, s.String())
		}
	case "completion":
		words = append(words, "bash", "zsh")
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// completionOf returns the script of a shell. zsh runs that of bash.
func completionOf(shell string) string {
	var b strings.Builder
	if shell == "zsh" {
		b.WriteString("#compdef hybridlimit\nautoload -U +X bashcompinit && bashcompinit\n")
	}
	b.WriteString("# Load it with: source <(hybridlimit completion " + shell + ")\n" +
		"_hybridlimit() {\n  local words\n  case \"${COMP_WORDS[1]}\" in\n")
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
		fmt.Fprintf(&b, "  %s) words='%s' ;;\n", c.name, strings.Join(c.words(), " "))
	}
	fmt.Fprintf(&b, "  *) words='%s' ;;\n  esac\n", strings.Join(names, " "))
	b.WriteString("  if [ \"$COMP_CWORD\" -eq 1 ]; then words='" + strings.Join(names, " ") + "'; fi\n" +
		"  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n" +
		"}\ncomplete -o default -F _hybridlimit hybridlimit\n")
	return b.String()
}

// version is the command version.
func version(*flag.FlagSet, *connection) job {
	j := job{check: func(bad *adapter.Violations, args []string) { arguments(bad, args, 0, 0, "must be none") }}
	j.do = func(_ context.Context, _ []string, out *printer) error {
		v := struct {
			Version string `json:"version"` // of the module; "(devel)" for a build from a checkout without one
			Commit  string `json:"commit,omitempty"`
			Go      string `json:"go"`
			Library string `json:"library"` // of Redis Functions; processes with another one run other scripts
		}{Version: "(devel)", Go: runtime.Version(), Library: lua.Library.Name}
		if info, ok := debug.ReadBuildInfo(); ok {
			if info.Main.Version != "" {
				v.Version = info.Main.Version
			}
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					v.Commit = s.Value
				}
			}
		}
		out.value = v
		fmt.Fprintf(out, "hybridlimit %s", v.Version)
		if v.Commit != "" {
			fmt.Fprintf(out, ", commit %s", v.Commit)
		}
		fmt.Fprintf(out, ", %s, scripts %s\n", v.Go, v.Library)
		return nil
	}
	return j
}
