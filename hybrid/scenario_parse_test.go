package hybrid_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// block is a paragraph of a scenario: comments, a command, and its output.
type block struct {
	line     int      // of the command
	comments []string // unchanged, "#" included
	command  string   // empty: the block has only comments
	want     string   // output lines, each with its line end
}

const fence = "----"

// parseScenario reads paragraphs of
//
//	# comments
//	command process arg=value
//	----
//	output
//
// with a blank line after each. A command without output needs no fence.
func parseScenario(file, text string) ([]block, error) {
	var blocks []block
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" {
			continue
		}
		var b block
		for ; i < len(lines) && strings.HasPrefix(lines[i], "#"); i++ {
			b.comments = append(b.comments, lines[i])
		}
		if i < len(lines) && lines[i] != "" {
			b.line, b.command = i+1, lines[i]
			if b.command == fence {
				return nil, fmt.Errorf("%s:%d: no command", file, b.line)
			}
			if i++; i < len(lines) && lines[i] == fence {
				for i++; i < len(lines) && lines[i] != ""; i++ {
					b.want += lines[i] + "\n"
				}
			}
			if i < len(lines) && lines[i] != "" {
				return nil, fmt.Errorf("%s:%d: want %q or a blank line after a command, not %q", file, i+1, fence, lines[i])
			}
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// formatScenario returns the text that parses as blocks.
func formatScenario(blocks []block) string {
	var out []string
	for _, b := range blocks {
		lines := slices.Clone(b.comments)
		if b.command != "" {
			lines = append(lines, b.command)
		}
		if b.want != "" {
			lines = append(lines, fence, strings.TrimSuffix(b.want, "\n"))
		}
		out = append(out, strings.Join(lines, "\n")+"\n")
	}
	return strings.Join(out, "\n")
}

// command is a parsed command line. Its methods panic with a badCommand, so that the code of
// commands needs no error checks. scene.run recovers the badCommand.
type command struct {
	at    string // file:line
	name  string
	words []string // without "="
	args  map[string]string
}

type badCommand struct{ error }

func (c *command) bad(format string, args ...any) {
	panic(badCommand{fmt.Errorf("%s: %s: %s", c.at, c.name, fmt.Sprintf(format, args...))})
}

// parseCommand splits a line at spaces outside of quotes.
func parseCommand(at, line string) *command {
	c := &command{at: at, args: map[string]string{}}
	quoted := false
	words := strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
	c.name, words = words[0], words[1:]
	if quoted {
		c.bad("a quote is not closed")
	}
	for _, w := range words {
		w = strings.ReplaceAll(w, `"`, "")
		name, value, named := strings.Cut(w, "=")
		switch _, twice := c.args[name]; {
		case !named || strings.ContainsAny(name, "<>"):
			c.words = append(c.words, w)
		case twice:
			c.bad("argument %q is given twice", name)
		default:
			c.args[name] = value
		}
	}
	return c
}

// text returns an argument and removes it, so that only unknown arguments remain.
func (c *command) text(name, otherwise string) string {
	value, ok := c.args[name]
	if !ok {
		return otherwise
	}
	delete(c.args, name)
	return value
}

func (c *command) int(name string, otherwise int64) int64 {
	value := c.text(name, "")
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		c.bad("%s: %v", name, err)
	}
	return n
}

func (c *command) duration(name string, otherwise time.Duration) time.Duration {
	value := c.text(name, "")
	if value == "" {
		return otherwise
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		c.bad("%s: %v", name, err)
	}
	return d
}

// limit reads an argument with hybridlimit.ParseLimit, such as "100/s burst 50".
func (c *command) limit(name string) hybridlimit.Limit {
	l, err := hybridlimit.ParseLimit(c.text(name, ""))
	if err != nil {
		c.bad("%s: %v", name, err)
	}
	return l
}

// nothing refuses arguments and words that no method has taken. Call it before the command
// does anything.
func (c *command) nothing() {
	for name := range c.args {
		c.bad("unknown argument %q", name)
	}
	if len(c.words) > 0 {
		c.bad("unknown word %q", c.words[0])
	}
}

func TestScenarioTextIsKept(t *testing.T) {
	const text = "# one\n# two\n\n# three\nwait 1s\n----\nt=1s\nmore\n\nwipe\n"
	blocks, err := parseScenario("f", text)
	if err != nil || formatScenario(blocks) != text || len(blocks) != 3 || blocks[1].line != 5 || blocks[1].want != "t=1s\nmore\n" {
		t.Errorf("%+v, %v", blocks, err)
	}
}
