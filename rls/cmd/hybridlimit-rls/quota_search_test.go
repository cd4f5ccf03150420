//go:build search

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/rls/internal/quotatest"
)

var servingGRPC = regexp.MustCompile(`serving" grpc=(\S*)`)

// replica starts a program, and returns the address of its gRPC service.
func replica(t *testing.T, args ...string) (*exec.Cmd, *grpc.ClientConn) {
	t.Helper()
	cmd := command(t, append(args, "-grpc", "127.0.0.1:0", "-http", "", "-rlqs")...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	addr := make(chan string, 1)
	go func() {
		for in := bufio.NewScanner(stderr); in.Scan(); {
			if at := servingGRPC.FindStringSubmatch(in.Text()); at != nil {
				addr <- at[1]
			}
		}
		close(addr)
	}()
	conn, err := grpc.NewClient(<-addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cmd, conn
}

// envoy is an Envoy with a stream.
type envoy struct {
	quotatest.Envoy
	stream pb.RateLimitQuotaService_StreamRateLimitQuotasClient // nil: it has none
	next   time.Time                                            // of the next report
}

// connect opens a stream.
func (e *envoy) connect(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	stream, err := pb.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	e.stream = stream
}

// report sends a report, and hears the answer.
func (e *envoy) report() error {
	if err := e.stream.Send(e.Report("d", map[string]string{"k": "v"}, time.Now())); err != nil {
		return err
	}
	res, err := e.stream.Recv()
	if err != nil {
		return err
	}
	return e.Hear(res.GetBucketAction()[0].GetQuotaAssignmentAction(), time.Now())
}

// TestFaultsOfQuotas has twelve Envoys on three replicas and a real Redis, with twice the load of the limit, and a fault
// in the middle. The excess is at most a tenth of a second of the limit. Only a replica that is killed adds its part, for
// the ten seconds of an assignment: its Envoys go on until then, and then go to another replica.
func TestFaultsOfQuotas(t *testing.T) {
	for name, fault := range map[string]func(f *quotaFleet){
		"a replica is killed": (*quotaFleet).kill,
		"Redis hangs": func(f *quotaFleet) {
			if err := f.redis.Pause(); err != nil {
				f.Error(err)
			}
			time.AfterFunc(15*time.Second, func() { _ = f.redis.Resume() })
		},
		"Redis begins anew": func(f *quotaFleet) {
			f.redis.Kill()
			time.AfterFunc(5*time.Second, func() { _ = f.redis.Restart() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQuotaFleet(t)
			before, after, use := f.run(fault)
			most := 0.1 + 10*f.lost
			t.Logf("excess %.3f s of the limit before, %.3f s after, of at most %.2f s; use %.0f %%", before, after, most, 100*use)
			if before > 0.1 || after > most || use < 0.75 || f.programs[0].ProcessState != nil && f.lost < 0.1 {
				t.Errorf("want at most 0.1 s, at most %.2f s, and at least 75 %%; %.0f %% of the slices are lost", most, 100*f.lost)
			}
		})
	}
}

// quotaLimit is the limit, in requests a second.
const quotaLimit = 1000.0

// quotaFleet is Envoys on three replicas.
type quotaFleet struct {
	*testing.T
	redis    *redistest.Server
	programs []*exec.Cmd
	conns    []*grpc.ClientConn
	envoys   []envoy
	lost     float64 // part of the limit that a killed replica had given
}

func newQuotaFleet(t *testing.T) *quotaFleet {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	rules := fmt.Sprintf("domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: second, requests_per_unit: %v}}\n", quotaLimit)
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &quotaFleet{T: t, redis: redistest.New(t), envoys: make([]envoy, 12)}
	for range 3 {
		cmd, conn := replica(t, "-config", file, "-redis", f.redis.Addr())
		f.programs, f.conns = append(f.programs, cmd), append(f.conns, conn)
	}
	return f
}

// kill kills the first replica.
func (f *quotaFleet) kill() {
	if err := f.programs[0].Process.Kill(); err != nil {
		f.Error(err)
	}
	for i := 0; i < len(f.envoys); i += len(f.conns) {
		e := &f.envoys[i]
		f.lost += e.Rate / quotaLimit
		e.next, e.stream = e.Expires.Add(time.Second), nil
	}
}

// run runs the Envoys, with a fault. It returns the excess in seconds of the limit, before and after the fault, and the
// part of the limit that was used.
func (f *quotaFleet) run(fault func(*quotaFleet)) (before, after, use float64) {
	const every, breaks, lasts = 5 * time.Second, 40 * time.Second, 75 * time.Second
	time.Sleep(5 * time.Second) // the replicas have found each other, and Redis has learned
	began, n := time.Now(), float64(len(f.envoys))
	for i := range f.envoys {
		f.envoys[i].connect(f.T, f.conns[i%len(f.conns)])
		f.envoys[i].Reported, f.envoys[i].next = began, began.Add(time.Duration(i)*every/time.Duration(n))
	}
	m, broken := quotatest.Meter{Limit: quotaLimit}, false
	for last := began; time.Since(began) < lasts; {
		time.Sleep(10 * time.Millisecond)
		now := time.Now()
		step := now.Sub(last)
		last = now
		if !broken && now.Sub(began) > breaks {
			broken, before, m.Excess = true, m.Excess, 0
			fault(f)
		}
		here, asked := 0.0, 0.0
		for i := range f.envoys {
			e := &f.envoys[i]
			passed, came := e.Pass(2*quotaLimit/n*step.Seconds(), step, now)
			here, asked = here+passed, asked+came
			if now.Before(e.next) {
				continue
			}
			if e.stream == nil {
				e.connect(f.T, f.conns[1])
			}
			if err := e.report(); err != nil {
				f.Fatalf("Envoy %d: %v", i, err)
			}
			e.next = now.Add(every)
		}
		m.Add(here, asked, step, now.Sub(began) > 4*every)
	}
	return before, m.Excess, m.Use()
}
