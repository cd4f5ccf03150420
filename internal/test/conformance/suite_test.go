package conformance

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// specOf returns the strictest spec, for a reference limiter with one fault, or "" for
// none.
func specOf(faulty string) Spec {
	return Spec{
		New: func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			r := newReference(limit, faulty)
			tb.Cleanup(func() { _ = r.Close() })
			return r
		},
		Close: func(l hybridlimit.Limiter) error { return l.(*reference).Close() },
		Wrap:  synctest.Test,
		Exact: true,
		Tick:  time.Nanosecond,
	}
}

func TestReferencePasses(t *testing.T) {
	strict := specOf("")
	strict.Name = "exact"
	Run(t, strict)

	weak := specOf("")
	weak.Name, weak.Exact, weak.RetryIsLowerBound = "weak", false, true
	weak.Bucket = hybridlimit.LeakyBucket
	Run(t, weak)

	lower := specOf("retries too early")
	lower.Name, lower.RetryIsLowerBound = "lower bound", true
	Run(t, lower)

	late := tolerant(specOf("retries too late"))
	late.Name = "late"
	Run(t, late)

	loose := specOf("bursts one more")
	loose.Name, loose.Exact = "slack", false
	loose.Slack = func(hybridlimit.Limit) int64 { return 1 }
	for _, c := range Cases() {
		// The limiter's burst is one unit larger than the burst that it reports. So it
		// admits a cost of burst+1, which these cases require to be denied, or it has
		// one unit more than they expect after a Peek or a new limit.
		if !slices.Contains([]string{"above burst", "left above the burst", "peek", "limit of a call", "set limit"}, c.Name) {
			t.Run(c.Name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { c.Run(t, loose) }) })
		}
	}
}

// ofTolerant marks a fault that the suite must find although the spec has every tolerance.
const ofTolerant = "tolerant "

// tolerant returns a spec with every tolerance that still promises units and times.
func tolerant(spec Spec) Spec {
	spec.RetrySlack, spec.Lag, spec.RetryOfFewer, spec.RetryByWindow = 2*time.Millisecond, 50*time.Millisecond, true, true
	spec.Split = func(hybridlimit.Limiter) int64 { return 1 }
	return spec
}

// faults maps each fault of a limiter to a case that must find it.
var faults = map[string]string{
	"bursts one more":                    "burst",
	"starts empty":                       "burst",
	"remains at the old value":           "burst",
	"has a name":                         "burst",
	"denies with an error":               "burst",
	"charges denials":                    "denials change nothing",
	"grants a part":                      "all or none",
	"wraps costs":                        "above burst",
	"retries for ever":                   "above burst",
	"retries at once":                    "burst",
	"retries too early":                  "retry after",
	"retries too late":                   "retry after",
	"refills twice as fast":              "refill",
	"refills half as fast":               "refill",
	"never refills":                      "refill",
	"hoards":                             "refill",
	"resets too early":                   "reset after",
	"resets a moment early":              "reset after",
	"resets a moment late":               "reset after",
	"resets without its debt":            "reset after in debt",
	"retries a moment early":             "retry after",
	ofTolerant + "retries too early":     "remaining",
	ofTolerant + "retries much too late": "retry after",
	ofTolerant + "refills half as fast":  "refill",
	ofTolerant + "denies what remains":   "remaining",
	ofTolerant + "refuses what remains":  "remaining",
	ofTolerant + "takes all or none":     "at most",
	"takes one at most":                  "at most",
	"retries a moment late":              "retry after",
	"shares one bucket":                  "keys are independent",
	"cleans keys":                        "keys are bytes",
	"trims keys":                         "keys are bytes",
	"cuts keys":                          "keys are bytes",
	"ends keys at NUL":                   "keys are bytes",
	"hashes tags":                        "keys are bytes",
	"takes any cost":                     "bad input",
	"takes any key":                      "bad input",
	"charges bad input":                  "bad input",
	"charges ended contexts":             "ended context",
	"loses updates":                      "concurrent callers",
	"refunds above full":                 "charge and refund",
	"refunds nothing":                    "charge and refund",
	"resets nobody":                      "reset",
	"resets everybody":                   "reset",
	"reserves nothing":                   "reserve",
	"keeps what is cancelled":            "reserve",
	"waits for what cannot be":           "wait",
	"cancels at the cost of several":     "cancel in any order",
	"cancels what has run over":          "cancel late",
	"adds a unit with each plan":         "limits in turn",
	ofWindow + "cancels in the next one": "cancel after a border",
	ofWindow + "refunds to the next one": "refund after a border",
	ofWindow + "refunds the latest":      "refund of a log",
	"gives up at the cost of others":     "give up waiting",
	"cancels half":                       "cancel the last",
	"cancels at the cost of others":      "cancel before others",
	"remains empty above the burst":      "left above the burst",
	"denies what remains":                "remaining",
	"hides what remains":                 "remaining",
	"refills the past at a new rate":     "set limit in time",
	"does not wait":                      "wait",
	"has a history":                      "history",
	"ignores Close":                      "closed",
	"grants when closed":                 "closed while in use",
	"closes once":                        "closed",
	"gives what is asked":                "at most",
	"takes all or none":                  "at most",
	"peeks for a unit":                   "peek",
	"forgets charges":                    "charge",
	"owes nothing":                       "charge",
	"refills under a plan":               "limit of a call",
	"keeps what is used":                 "limit of a call",
	"refills at a new limit":             "set limit",
	"hoards under a plan":                "set limit",
	"sets any limit":                     "set limit",
	"charges anything":                   "bad input",
	"charges when closed":                "closed",
}

const faultEnv = "LIMITERTEST_FAULT"

// TestFaultsAreFound runs the suite on each faulty limiter, in a separate process: a test
// cannot expect another one to fail.
func TestFaultsAreFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for fault, name := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self, "-test.run=^TestFault$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), faultEnv+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passes a limiter that %s", fault)
			}
			want := "--- FAIL: TestFault/" + strings.ReplaceAll(name, " ", "_") + " "
			if !strings.Contains(string(out), want) {
				t.Errorf("the case %q does not find that the limiter %s; the output:\n%s", name, fault, out)
			}
			if strings.Contains(string(out), "panic:") {
				t.Errorf("the suite panicked with a faulty limiter, want a failed test:\n%s", out)
			}
		})
	}
}

// TestFault is the test that TestFaultsAreFound runs in its processes.
func TestFault(t *testing.T) {
	fault, ok := os.LookupEnv(faultEnv)
	if !ok {
		return
	}
	if strings.HasPrefix(fault, ofWindow) {
		runWindows(t, fault)
		return
	}
	if of, ok := strings.CutPrefix(fault, ofTolerant); ok {
		Run(t, tolerant(specOf(of)))
		return
	}
	Run(t, specOf(fault))
}
