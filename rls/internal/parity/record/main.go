// Record writes the answers of envoyproxy/ratelimit to the cases of package parity.
//
//	go run ./internal/parity/record -from CLONE [-to DIR]
//
// CLONE is a clone of envoyproxy/ratelimit. Its commit in work becomes the pin. Record draws the requests of a case from
// its configuration, so that the same configuration has the same requests.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/hybridlimit/hybridlimit/rls/internal/parity"
)

//go:embed program.go.txt
var program []byte

func main() {
	from := flag.String("from", "", "clone of envoyproxy/ratelimit")
	to := flag.String("to", filepath.Join("internal", "parity", "testdata"), "directory of the cases")
	flag.Parse()
	probes, err := record(*from, *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
	fmt.Printf("%d answers are recorded\n", probes)
}

// input is a case, and output are its answers, as the program has them.
type input struct {
	Env    map[string]string
	Merge  bool
	Files  []parity.File
	Rounds [][]json.RawMessage
}

type output struct {
	Refused string
	Rounds  [][]json.RawMessage
}

// variables are the variables of options.
var variables = map[string]string{
	parity.Headers: "LIMIT_RESPONSE_HEADERS_ENABLED", parity.Metadata: "RESPONSE_DYNAMIC_METADATA",
	parity.Shadow: "SHADOW_MODE", parity.Quota: "QUOTA_MODE",
}

// record records the answers of a clone, and returns their number.
func record(from, to string) (probes int, err error) {
	pin, err := pinOf(from)
	if err != nil {
		return 0, err
	}
	cases, err := parity.Read(to)
	if err != nil {
		return 0, err
	}
	if len(cases) == 0 {
		return 0, fmt.Errorf("%s has no case", to)
	}
	inputs := make([]input, len(cases))
	for i, c := range cases {
		in := input{Env: map[string]string{}, Merge: c.Has(parity.Merge), Files: c.Files}
		for option, name := range variables {
			if c.Has(option) {
				in.Env[name] = "true"
			}
		}
		c.Refused, c.Rounds = false, draw(c)
		for _, round := range c.Rounds {
			texts := []json.RawMessage{}
			for _, p := range round {
				texts = append(texts, json.RawMessage(parity.JSON(p.Request)))
			}
			in.Rounds = append(in.Rounds, texts)
		}
		inputs[i] = in
	}
	outputs, err := run(from, inputs)
	if err != nil {
		return 0, err
	}
	for i, c := range cases {
		if outputs[i].Refused != "" {
			c.Refused, c.Rounds = true, nil
		}
		for r, round := range c.Rounds {
			for p := range round {
				var res pb.RateLimitResponse
				if err := protojson.Unmarshal(outputs[i].Rounds[r][p], &res); err != nil {
					return 0, err
				}
				round[p].Answer = parity.Text(&res)
				probes++
			}
		}
		if err := os.WriteFile(filepath.Join(to, c.Name+".txt"), []byte(c.String()), 0o644); err != nil {
			return 0, err
		}
	}
	if pin.Hash, err = parity.Hash(to); err != nil {
		return 0, err
	}
	return probes, pin.Write(to)
}

// pinOf returns the commit of a clone, and its date.
func pinOf(clone string) (parity.Pin, error) {
	if clone == "" {
		return parity.Pin{}, fmt.Errorf("-from is required")
	}
	cmd := exec.Command("git", "-C", clone, "log", "-1", "--format=%H %cs")
	out, err := cmd.Output()
	if err != nil {
		return parity.Pin{}, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	commit, date, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return parity.Pin{Commit: commit, Date: date}, nil
}

// run runs the program in a copy of a clone.
func run(clone string, inputs []input) (outputs []output, err error) {
	dir, err := os.MkdirTemp("", "parity")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	archive := exec.Command("git", "-C", clone, "archive", "HEAD")
	unpack := exec.Command("tar", "-x", "-C", dir)
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := unpack.Start(); err != nil {
		return nil, err
	}
	if err := archive.Run(); err != nil {
		return nil, fmt.Errorf("git archive: %w", err)
	}
	if err := unpack.Wait(); err != nil {
		return nil, fmt.Errorf("tar: %w", err)
	}
	at := filepath.Join(dir, "src", "parity_cmd")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(at, "main.go"), program, 0o644); err != nil {
		return nil, err
	}
	text, err := json.Marshal(inputs)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "run", "-mod=mod", "./src/parity_cmd")
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(text), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the program in %s: %w", clone, err)
	}
	return outputs, json.Unmarshal(out, &outputs)
}
