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
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
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

// envoy is the local rate limit of an Envoy, with one bucket.
type envoy struct {
	stream                pb.RateLimitQuotaService_StreamRateLimitQuotasClient
	rate, most            float64 // tokens a second, and the size of the bucket
	tokens, pending       float64
	allowed, denied       uint64
	expires, next, before time.Time // of the assignment; the next and the last report
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

// report sends a report, and applies the answer. It reports whether the stream lives.
func (e *envoy) report(t *testing.T) bool {
	t.Helper()
	now := time.Now()
	err := e.stream.Send(&pb.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &pb.BucketId{Bucket: map[string]string{"k": "v"}}, TimeElapsed: durationpb.New(now.Sub(e.before)),
		NumRequestsAllowed: e.allowed, NumRequestsDenied: e.denied,
	}}})
	if err != nil {
		return false
	}
	res, err := e.stream.Recv()
	if err != nil {
		return false
	}
	a := res.GetBucketAction()[0].GetQuotaAssignmentAction()
	b := a.GetRateLimitStrategy().GetTokenBucket()
	rate := 0.0
	if b != nil {
		rate = float64(b.GetTokensPerFill().GetValue()) / b.GetFillInterval().AsDuration().Seconds()
	}
	if now = time.Now(); rate != e.rate || now.After(e.expires) {
		e.rate, e.most, e.tokens = rate, float64(b.GetMaxTokens()), float64(b.GetMaxTokens())
	}
	e.allowed, e.denied, e.before, e.expires = 0, 0, now, now.Add(a.GetAssignmentTimeToLive().AsDuration())
	return true
}

// pass passes requests, and returns their number.
func (e *envoy) pass(asked float64, step time.Duration) float64 {
	if time.Now().After(e.expires) {
		e.rate, e.tokens = 0, 0
	}
	e.tokens = min(e.tokens+e.rate*step.Seconds(), e.most)
	e.pending += asked
	calls := float64(int64(e.pending))
	e.pending -= calls
	passed := min(calls, float64(int64(e.tokens)))
	e.tokens -= passed
	e.allowed += uint64(passed)
	e.denied += uint64(calls - passed)
	return passed
}

// TestKilledReplica has twelve Envoys on three replicas and a real Redis, with twice the load of the limit. One replica is
// killed. Its Envoys go on until their assignments have expired, and then go to another replica. The excess is at most a
// tenth of a second of the limit, and the part of the killed replica for the ten seconds of an assignment.
func TestKilledReplica(t *testing.T) {
	const (
		limit, envoys      = 1000.0, 12
		every, kill, lasts = 5 * time.Second, 40 * time.Second, 75 * time.Second
	)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	rules := fmt.Sprintf("domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: second, requests_per_unit: %v}}\n", limit)
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := redistest.New(t).Addr()
	var programs []*exec.Cmd
	var conns []*grpc.ClientConn
	for range 3 {
		cmd, conn := replica(t, "-config", file, "-redis", redis)
		programs, conns = append(programs, cmd), append(conns, conn)
	}
	time.Sleep(5 * time.Second)
	began := time.Now()
	all := make([]envoy, envoys)
	for i := range all {
		all[i].connect(t, conns[i%3])
		all[i].before, all[i].next = began, began.Add(time.Duration(i)*every/envoys)
	}
	var balance, lowest, before, after, lost, served, could float64
	killed := false
	for last := began; time.Since(began) < lasts; {
		time.Sleep(10 * time.Millisecond)
		now := time.Now()
		step := now.Sub(last)
		last = now
		if !killed && now.Sub(began) > kill {
			killed = true
			programs[0].Process.Kill()
			for i := 0; i < envoys; i += 3 {
				lost += all[i].rate / limit
				all[i].next = all[i].expires.Add(time.Second)
				all[i].stream = nil
			}
		}
		passed := 0.0
		for i := range all {
			e := &all[i]
			passed += e.pass(2*limit/envoys*step.Seconds(), step)
			if now.Before(e.next) {
				continue
			}
			if e.stream == nil {
				e.connect(t, conns[1])
			}
			if !e.report(t) {
				t.Fatalf("Envoy %d has lost its stream", i)
			}
			e.next = now.Add(every)
		}
		balance += passed - limit*step.Seconds()
		lowest = min(lowest, balance)
		if excess := (balance - lowest) / limit; killed {
			after = max(after, excess)
		} else {
			before = max(before, excess)
		}
		if now.Sub(began) > 4*every {
			served, could = served+passed, could+limit*step.Seconds()
		}
	}
	t.Logf("excess %.3f s of the limit before, %.3f s after the loss of %.0f %% of it; use %.0f %%", before, after, 100*lost, 100*served/could)
	if before > 0.1 || after > 0.1+10*lost || served < 0.75*could || lost < 0.1 {
		t.Errorf("want at most 0.1 s, at most %.2f s, at least 10 %%, and at least 75 %%", 0.1+10*lost)
	}
}
