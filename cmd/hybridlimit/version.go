package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// version is the command version.
func version(*flag.FlagSet, *connection) job {
	j := job{check: func(bad *hybridlimit.Violations, args []string) { arguments(bad, args, 0, 0, "must be none") }}
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
		out.sets(v)
		fmt.Fprintf(out, "hybridlimit %s", v.Version)
		if v.Commit != "" {
			fmt.Fprintf(out, ", commit %s", v.Commit)
		}
		fmt.Fprintf(out, ", %s, scripts %s\n", v.Go, v.Library)
		return nil
	}
	return j
}
