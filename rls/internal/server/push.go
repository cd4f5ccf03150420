package server

import (
	"context"
	"fmt"
	"log/slog"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/rls"
	"github.com/hybridlimit/hybridlimit/rls/internal/xds"
)

// XDS is the control plane that rules come from. Without an Address they come from files.
type XDS struct {
	Address  string
	Node     string            // its id
	Metadata map[string]string // of the node
	Header   map[string]string // of the stream
	UseTLS   bool              // also without files
	TLS      ClientTLS
	Name     string // that the certificate of the control plane must have; empty: that of the address
	MaxBytes int    // of a push
}

// encrypted reports whether the connection has TLS.
func (x XDS) encrypted() bool { return x.UseTLS || x.TLS != ClientTLS{} || x.Name != "" }

func (x XDS) check(bad *adapter.Violations) {
	if x.Address == "" {
		return
	}
	bad.AddIf(x.MaxBytes < 1 || x.MaxBytes > maxBytes, "-xds-max-bytes", x.MaxBytes, fmt.Sprintf("must be 1 to %d", maxBytes))
	bad.AddIf(x.Node == "", "-xds-node", x.Node, "must not be empty")
	x.TLS.check("-xds", bad)
}

// msgRefused is the line of the log about a push that cannot be used, or a control plane that is away.
const msgRefused = "hybridlimit-rls: the control plane cannot be used; the rules before stay in force"

// pushes keeps the rules of a service as those of a control plane.
type pushes struct {
	source
	client xds.Client
}

// newPushes returns the rules of a control plane. InForce is called with all rules that are put in force.
func newPushes(s Settings, service *rls.Service, log *slog.Logger, inForce func(*rls.Rules)) (*pushes, error) {
	x := s.XDS
	p := &pushes{source: newSource("xds:"+x.Address, msgRefused, log)}
	creds := insecure.NewCredentials()
	if x.encrypted() {
		c, err := x.TLS.config(false)
		if err != nil {
			return nil, err
		}
		c.ServerName = x.Name
		creds = credentials.NewTLS(c)
	}
	fields := map[string]*structpb.Value{}
	for name, value := range x.Metadata {
		fields[name] = structpb.NewStringValue(value)
	}
	p.client = xds.Client{
		Address: x.Address, Credentials: creds, Header: metadata.New(x.Header), MaxBytes: x.MaxBytes,
		Node: &core.Node{Id: x.Node, Metadata: &structpb.Struct{Fields: fields}, UserAgentName: "hybridlimit-rls"},
		Apply: func(resources []*anypb.Any) error {
			rules, err := xds.Rules(resources, s.Merge)
			if err != nil {
				return err
			}
			before := len(service.Rules().Rules())
			if err := service.SetRules(rules); err != nil {
				return err
			}
			if len(resources) == 0 && before > 0 {
				p.log.Warn("hybridlimit-rls: the control plane has no rules any more, so that all calls pass", slog.Int("rules before", before))
			}
			p.inForce(rules)
			inForce(rules)
			return nil
		},
		Note: func(pushed bool, err error) {
			if pushed && err != nil {
				service.CountRefused()
			}
			p.mu.Lock()
			p.connected = pushed
			p.mu.Unlock()
			p.note(err)
		},
	}
	return p, nil
}

func (p *pushes) run(ctx context.Context) {
	if err := p.client.Run(ctx); err != nil {
		p.note(err)
	}
}
