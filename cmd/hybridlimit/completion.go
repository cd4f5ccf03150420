package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// completion is the command completion.
func completion(*flag.FlagSet, *connection) job {
	var j job
	j.check = func(bad *hybridlimit.Violations, args []string) {
		arguments(bad, args, 1, 1, "must be bash or zsh")
		if len(args) == 1 && args[0] != "bash" && args[0] != "zsh" {
			bad.Add("SHELL", args[0], "must be bash or zsh")
		}
	}
	j.do = func(_ context.Context, args []string, out *printer) error {
		script := completionOf(args[0])
		out.sets(struct {
			Script string `json:"script"`
		}{script})
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
