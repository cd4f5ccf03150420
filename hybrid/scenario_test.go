package hybrid_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestScenarios plays stories of real limiters and real scripts in virtual time. -count=20 shows whether an output depends
// on chance: on the random pauses of a retry, an open breaker or a re-sync, on a proof older than 2.5 s, or on two events
// at one instant.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"cold start": scenarioColdStart, "refill": scenarioRefill, "near the limit, auto": scenarioNearLimitAuto,
		"near the limit, strict": scenarioNearLimitStrict, "over the limit": scenarioOverLimit, "windows": scenarioWindows,
		"fleet size": scenarioFleetSize, "slow Redis": scenarioSlowRedis, "lost reply": scenarioLostReply,
		"outage": scenarioOutage, "wipe": scenarioWipe, "crash": scenarioCrash, "eviction": scenarioEviction,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scene{t: t}
				for _, step := range steps {
					if got := s.run(step[0]); !slices.Equal(got, step[1:]) {
						t.Errorf("%s, at t=%v: got %q, want %q", step[0], s.now(), got, step[1:])
					}
				}
			})
		})
	}
}

// step is a command and the lines of its output.
type step []string

// commands are the commands of a scenario. WHO is p1, or p1,p2, or all.
var commands = map[string]func(*scene, *command){
	// Processes and faults: scenario_cast_test.go.
	"fleet":         (*scene).fleet,        // limit="100/s burst 50" processes=1 mode=auto overshoot=5% sync-interval= max-keys=
	"wait":          (*scene).wait,         // 50ms, or until=3s
	"join":          (*scene).join,         // a new name
	"leave":         (*scene).leave,        // WHO
	"crash":         (*scene).crash,        // WHO
	"lose-reply":    (*scene).loseReply,    // WHO
	"lose-request":  (*scene).loseRequest,  // WHO
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

// run carries out a command and returns the lines of its output.
func (s *scene) run(line string) []string {
	c := parseCommand(s.t, line)
	do, ok := commands[c.name]
	if !ok {
		c.bad("unknown command")
	}
	s.out.Reset()
	do(s, c)
	synctest.Wait()
	return slices.DeleteFunc(strings.Split(s.out.String(), "\n"), func(line string) bool { return line == "" })
}

// command is a parsed command line. Its methods end the test at a mistake.
type command struct {
	t     *testing.T
	line  string
	name  string
	words []string // without "="
	args  map[string]string
}

func (c *command) bad(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s: %s", c.line, fmt.Sprintf(format, args...))
}

// parseCommand splits a line at spaces outside of quotes.
func parseCommand(t *testing.T, line string) *command {
	c := &command{t: t, line: line, args: map[string]string{}}
	quoted := false
	words := strings.FieldsFunc(line, func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ' ' && !quoted
	})
	c.name = words[0]
	for _, w := range words[1:] {
		name, value, named := strings.Cut(w, "=")
		if named && !strings.ContainsAny(name, "<>") {
			c.args[name] = strings.Trim(value, `"`)
		} else {
			c.words = append(c.words, w)
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
	return parsed(c, name, otherwise, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
}

func (c *command) duration(name string, otherwise time.Duration) time.Duration {
	return parsed(c, name, otherwise, time.ParseDuration)
}

func parsed[T any](c *command, name string, otherwise T, parse func(string) (T, error)) T {
	value := c.text(name, "")
	if value == "" {
		return otherwise
	}
	v, err := parse(value)
	if err != nil {
		c.bad("%s: %v", name, err)
	}
	return v
}

// limit reads the argument limit with hybridlimit.ParseLimit, such as "100/s burst 50".
func (c *command) limit() hybridlimit.Limit {
	return parsed(c, "limit", hybridlimit.Limit{}, hybridlimit.ParseLimit)
}

// nothing refuses arguments and words that no method has taken. Call it before the command does anything.
func (c *command) nothing() {
	if len(c.args) > 0 || len(c.words) > 0 {
		c.bad("unknown arguments %v and words %q", c.args, c.words)
	}
}
