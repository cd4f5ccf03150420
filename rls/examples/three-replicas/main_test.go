package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestMain runs the program itself in the processes that the run starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "redis" || os.Args[1] == "replica") {
		main()
		return
	}
	os.Exit(m.Run())
}

// Calls are admitted in all phases. In one second of a phase up to three times the limit
// may be admitted: the one in which Redis is lost or found, because leased units count
// beside the shares. In the others the bound is 1.5 times the limit. The calls of a busy
// machine take more seconds, and each has a limit of its own.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), 3, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	admitted, high := map[string]int{}, map[string]int{}
	for _, line := range strings.Split(out.String(), "\n") {
		for _, phase := range []string{"up", "killed", "new, empty"} {
			_, rest, ok := strings.Cut(line, "  "+phase+" ")
			if !ok {
				continue
			}
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			windows := 1
			if _, late, ok := strings.Cut(rest, "late: took "); ok {
				if _, err := fmt.Sscanf(late, "%d seconds", &windows); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
			if n > limit*windows*3/2 {
				high[phase]++
			}
			if err != nil || n > 3*limit*windows || high[phase] > 1 {
				t.Errorf("%s: %v", line, err)
			}
			admitted[phase] += n
		}
	}
	if len(admitted) != 3 || admitted["up"] == 0 || admitted["killed"] == 0 || admitted["new, empty"] == 0 {
		t.Errorf("%v", admitted)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
