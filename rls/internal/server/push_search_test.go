//go:build search

package server

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/rls/internal/xds"
)

// TestHungControlPlane has a control plane that hangs: nothing comes any more, and no connection breaks. The rules stay,
// the connection is given up within 13 s, and the next push counts.
func TestHungControlPlane(t *testing.T) {
	p := newPlane(t, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var hung atomic.Bool
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.address)
			if err != nil {
				in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					defer way[0].Close()
					defer way[1].Close()
					buf := make([]byte, 32<<10)
					for {
						n, err := way[0].Read(buf)
						for hung.Load() {
							time.Sleep(10 * time.Millisecond)
						}
						if err != nil {
							return
						}
						if _, err := way[1].Write(buf[:n]); err != nil {
							return
						}
					}
				}()
			}
		}
	}()
	p.push(ruled(5, 0))
	r := start(t, "-xds", l.Addr().String(), "-xds-node", "n")
	r.limited(5)
	hung.Store(true)
	began := time.Now()
	p.push(ruled(6, 0))
	redistest.Eventually(t, 30*time.Second, "the connection is given up", func() bool {
		if got, err := r.limit(); got != 5 || err != nil {
			t.Fatalf("while the control plane hangs: %d, %v", got, err)
		}
		_, text := r.get("/metrics")
		return counted(text, fmt.Sprintf("rate_limiting_config_errors_total{rate_limiting_config_file=\"xds:%s\"}", l.Addr()))
	})
	took := time.Since(began)
	if t.Logf("given up after %v", took); took > 16*time.Second {
		t.Errorf("given up after %v, want 13 s", took)
	}
	hung.Store(false)
	r.limited(6)
}

// liar pushes nonsense as fast as it can.
type liar struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	good   *discovery.DiscoveryResponse
	pushed atomic.Int64
}

func (l *liar) StreamAggregatedResources(s grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	go io.Copy(io.Discard, reader{s})
	if err := s.Send(l.good); err != nil {
		return err
	}
	for i := 0; ; i++ {
		res := &discovery.DiscoveryResponse{VersionInfo: fmt.Sprint(i), Nonce: fmt.Sprint(i), TypeUrl: []string{xds.Type, "other", ""}[i%3]}
		if i%3 == 0 {
			res.Resources = append(res.Resources, l.good.GetResources()...)
			res.Resources = append(res.Resources, l.good.GetResources()...)
		}
		if err := s.Send(res); err != nil {
			return err
		}
		l.pushed.Add(1)
	}
}

// reader reads requests until the stream ends.
type reader struct {
	s grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]
}

func (r reader) Read([]byte) (int, error) {
	_, err := r.s.Recv()
	return 0, err
}

// TestLyingControlPlane floods with nonsense. No answer changes, and most of the flood is not even read.
func TestLyingControlPlane(t *testing.T) {
	good := resourcesOf(t, ruled(5, 0))
	lies := &liar{good: &discovery.DiscoveryResponse{VersionInfo: "good", Nonce: "good", TypeUrl: xds.Type, Resources: good}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, lies)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	r := start(t, "-xds", l.Addr().String(), "-xds-node", "n")
	r.limited(5)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, err := r.limit(); got != 5 || err != nil {
			t.Fatalf("%d, %v after %d lies", got, err, lies.pushed.Load())
		}
	}
	_, text := r.get("/metrics")
	refused := valueOf(t, text, "ratelimit_service_config_load_error")
	if t.Logf("%d pushes, of which %v were looked at", lies.pushed.Load(), refused); refused < 3 || refused > 60 {
		t.Errorf("%v pushes were looked at in 5 s, want at most 10 a second", refused)
	}
}

// resourcesOf returns a configuration as resources.
func resourcesOf(t *testing.T, c *config.RateLimitConfig) []*anypb.Any {
	t.Helper()
	one, err := anypb.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return []*anypb.Any{one}
}

// valueOf returns the value of a metric without labels.
func valueOf(t *testing.T, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
