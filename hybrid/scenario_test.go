package hybrid_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

var update = flag.Bool("update", false, "write the output of the scenarios into testdata/scenarios")

// TestScenarios runs testdata/scenarios: stories of real limiters and real scripts in virtual
// time. To add a scenario, write comments and commands (see below), and let -update add the
// outputs. Then check the outputs by hand, and give the reasons in the comments. -count=20
// shows whether an output depends on chance: on the random pauses of a retry, an open breaker
// or a re-sync, on a proof older than 2.5 s, or on two events at one instant.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			blocks, err := parseScenario(file, string(text))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				for _, difference := range play(t, file, blocks, *update) {
					t.Error(difference)
				}
			})
			switch {
			case t.Failed():
			case !*update && formatScenario(blocks) != string(text):
				t.Errorf("%s is not as -update writes it: one blank line after each block", file)
			case *update:
				if err := os.WriteFile(file, []byte(formatScenario(blocks)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// play runs the blocks of a file and returns the differences from the wanted outputs. With
// update it makes the outputs the wanted ones instead.
func play(t *testing.T, file string, blocks []block, update bool) (differences []string) {
	s := newScene(t)
	for i := range blocks {
		b := &blocks[i]
		if b.command == "" {
			continue
		}
		at := fmt.Sprintf("%s:%d", file, b.line)
		got, err := s.run(at, b.command)
		switch {
		case err != nil:
			t.Fatal(err)
		case update:
			b.want = got
		case got != b.want:
			differences = append(differences, fmt.Sprintf("%s: %s\ngot:\n%swant:\n%s", at, b.command, got, b.want))
		}
	}
	return differences
}

// commands are the commands of a scenario. WHO is p1, or p1,p2, or all.
var commands = map[string]func(*scene, *command){
	// Processes and faults: scenario_cast_test.go.
	"fleet":         (*scene).fleet,        // limit="100/s burst 50" processes=1 mode=auto overshoot=5% sync-every= sync-interval= max-keys=
	"wait":          (*scene).wait,         // 50ms, or until=3s
	"join":          (*scene).join,         // a new name
	"leave":         (*scene).leave,        // WHO
	"crash":         (*scene).crash,        // WHO
	"lose-reply":    (*scene).loseReply,    // WHO times=1
	"lose-request":  (*scene).loseRequest,  // WHO times=1
	"hang":          (*scene).hang,         // WHO
	"resume":        (*scene).resume,       // WHO
	"kill-redis":    (*scene).killRedis,    //
	"restart-redis": (*scene).restartRedis, //
	"wipe":          (*scene).wipe,         //
	// Calls and outputs: scenario_show_test.go.
	"allow":    (*scene).allow,    // WHO key= n=1 times=1 every= within= sum
	"redis":    (*scene).redis,    // key=
	"stats":    (*scene).stats,    // WHO figures
	"messages": (*scene).messages, // WHO
}

// run carries out one command line and returns its output.
func (s *scene) run(at, line string) (out string, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case badCommand:
			err = r
		default:
			panic(r)
		}
	}()
	c := parseCommand(at, line)
	do, ok := commands[c.name]
	if !ok {
		c.bad("unknown command")
	}
	if s.bubble == nil && c.name != "fleet" {
		c.bad("there is no fleet yet")
	}
	s.out.Reset()
	do(s, c)
	synctest.Wait()
	return s.out.String(), nil
}

// TestScenarioDifferences checks that a wrong output is reported once, and that an update
// corrects it.
func TestScenarioDifferences(t *testing.T) {
	const text = "fleet limit=\"1/s burst 5\"\n----\nt=1.1s, N=1\n\nallow p1 key=a\n----\nlease allowed\n\nwait 1ms\n----\nt=1.102s\n"
	blocks, err := parseScenario("f", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, update := range []bool{false, true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := play(t, "f", blocks, update)
			if first := blocks[1].want == "lease allowed\n"; len(d) > 1 || (len(d) == 1) != first ||
				first && !strings.HasPrefix(d[0], "f:5: allow p1 key=a\ngot:\nredis allowed, remaining 4") {
				t.Errorf("update %t: %q", update, d)
			}
		})
	}
}

// TestScenarioMistakes checks that a mistake in a scenario is an error with file and line.
func TestScenarioMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"# a\n\nwait 1s\nwait 1s\n": `f:4: want "----" or a blank line`,
		"# a\n----\nt=1s\n":         "f:2: no command",
		"\nwait 1s":                 "f:2: wait: there is no fleet yet",
		"fleet processes=1 limit=\"100/s burst 50\" speed=2":    `f:1: fleet: unknown argument "speed"`,
		"fleet processes=x limit=\"100/s burst 50\"":            `f:1: fleet: processes: strconv.ParseInt: parsing "x"`,
		"fleet processes=1 limit=\"100/s":                       "f:1: fleet: a quote is not closed",
		"fleet processes=1 limit=100/x":                         `f:1: fleet: limit: hybridlimit: Limit ("100/x") cannot be read`,
		"fleet limit=\"1/s burst 5\"\n\nfly":                    "f:3: fly: unknown command",
		"fleet limit=\"1/s burst 5\"\n\nallow p2 key=a":         `f:3: allow: no process "p2"`,
		"fleet limit=\"1/s burst 5\"\n\nallow p1":               "f:3: allow: which key?",
		"fleet limit=\"1/s burst 5\"\n\nallow p1 key=a n=1 n=2": `f:3: allow: argument "n" is given twice`,
		"fleet limit=\"1/s burst 5\"\n\nstats p1 weight":        `f:3: stats: no figure "weight"`,
		"fleet limit=\"1/s burst 5\"\n\nwait a while":           `f:3: wait: time: invalid duration "a"`,
		"fleet limit=\"1/s burst 5\"\n\nstats p1 held>=x":       "f:3: stats: held>=x is not a bound",
		"fleet limit=\"1/s burst 5\"\n\nwait 1s 2s":             `f:3: wait: unknown word "2s"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			blocks, err := parseScenario("f", text)
			for _, b := range blocks {
				if b.command != "" && err == nil {
					_, err = s.run(fmt.Sprint("f:", b.line), b.command)
				}
			}
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q: %v, want %s", text, err, want)
			}
		})
	}
}
