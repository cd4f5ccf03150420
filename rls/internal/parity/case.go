package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// Case is a configuration, and recorded answers. Its text:
//
//	# a sentence about it
//	options: headers metadata
//	== a.yaml
//	domain: ...
//	== round
//	? {"domain": ...}
//	= OK | OK 5/DAY left 4 reset 86400
//
// A round begins with unused counts, on 1 January 2000 at 11:23:45, and takes no time. A configuration that was refused has the line
// "== refused" instead of rounds.
type Case struct {
	Name    string // of the file, without .txt
	Head    string // the text above the first round
	Options []string
	Files   []File
	Refused bool
	Rounds  [][]Probe
}

// File is a file of a configuration.
type File struct{ Name, Text string }

// Probe is a request and its answer, as Text has it.
type Probe struct {
	Request *pb.RateLimitRequest
	Answer  string
}

// The options of a case.
const (
	Headers  = "headers"  // LIMIT_RESPONSE_HEADERS_ENABLED
	Metadata = "metadata" // RESPONSE_DYNAMIC_METADATA
	Shadow   = "shadow"   // SHADOW_MODE
	Quota    = "quota"    // QUOTA_MODE
	Merge    = "merge"    // MERGE_DOMAIN_CONFIG
	Limits   = "limits"   // some descriptors have a limit of their own, 3 an hour
)

// Has reports whether the case has an option.
func (c *Case) Has(option string) bool { return slices.Contains(c.Options, option) }

// Read reads all cases of a directory, in the order of their names.
func Read(dir string) ([]*Case, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []*Case
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		c, err := parse(strings.TrimSuffix(filepath.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// parse reads the text of a case.
func parse(name, text string) (*Case, error) {
	c := &Case{Name: name}
	head := true // above the first round
	for i, line := range strings.SplitAfter(text, "\n") {
		title, isTitle := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "== ")
		switch rest := strings.TrimSuffix(line, "\n"); {
		case line == "":
		case isTitle && title == "refused":
			head, c.Refused = false, true
		case isTitle && title == "round":
			head, c.Rounds = false, append(c.Rounds, nil)
		case isTitle && head:
			c.Files = append(c.Files, File{Name: title})
		case head && len(c.Files) > 0:
			c.Files[len(c.Files)-1].Text += line
		case head && strings.HasPrefix(rest, "options:"):
			c.Options = strings.Fields(rest[len("options:"):])
		case head && strings.HasPrefix(rest, "#"):
		case !head && len(c.Rounds) > 0 && strings.HasPrefix(rest, "? "):
			var req pb.RateLimitRequest
			if err := protojson.Unmarshal([]byte(rest[2:]), &req); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			last := &c.Rounds[len(c.Rounds)-1]
			*last = append(*last, Probe{Request: &req})
		case !head && len(c.Rounds) > 0 && strings.HasPrefix(rest, "= ") && len(c.Rounds[len(c.Rounds)-1]) > 0:
			last := c.Rounds[len(c.Rounds)-1]
			last[len(last)-1].Answer = rest[2:]
		default:
			return nil, fmt.Errorf("line %d: %q has no meaning here", i+1, rest)
		}
		if head {
			c.Head += line
		}
	}
	return c, nil
}

// String returns the text of a case.
func (c *Case) String() string {
	var b strings.Builder
	b.WriteString(c.Head)
	if c.Refused {
		b.WriteString("== refused\n")
	}
	for _, round := range c.Rounds {
		b.WriteString("== round\n")
		for _, p := range round {
			fmt.Fprintf(&b, "? %s\n= %s\n", JSON(p.Request), p.Answer)
		}
	}
	return b.String()
}

// JSON returns a request without the spaces that protojson draws.
func JSON(req *pb.RateLimitRequest) string {
	text, err := protojson.Marshal(req)
	if err != nil {
		panic(err) // a request of strings that are not UTF-8
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		panic(err)
	}
	return b.String()
}
