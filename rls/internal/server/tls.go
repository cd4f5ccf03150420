package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/filepoll"
)

// certificates has the TLS configuration of new connections. It follows its files.
type certificates struct {
	current atomic.Pointer[tls.Config]
	poller  filepoll.Poller[*tls.Config]
	log     *slog.Logger
	logged  string // the last error
}

// newCertificates reads the files.
func newCertificates(ctx context.Context, files TLS, log *slog.Logger) (*certificates, error) {
	c := &certificates{log: log}
	c.poller = filepoll.Poller[*tls.Config]{
		Read: func() ([]byte, error) {
			var texts [3][]byte
			for i, name := range [...]string{files.Cert, files.Key, files.ClientCA} {
				if name == "" {
					continue
				}
				var err error
				if texts[i], err = readRegular(name, maxBytes); err != nil {
					return nil, err
				}
			}
			return json.Marshal(texts)
		},
		Parse: func(data []byte) (*tls.Config, error) { return parseTLS(data, files.ClientName) },
		Apply: func(cfg *tls.Config, _ [sha256.Size]byte) error {
			c.current.Store(cfg)
			return nil
		},
	}
	if err := c.poller.Look(ctx); err != nil {
		return nil, fmt.Errorf("hybridlimit-rls: -tls-cert, -tls-key, -tls-client-ca: %w", err)
	}
	return c, nil
}

func parseTLS(data []byte, clientName string) (*tls.Config, error) {
	var texts [3][]byte
	if err := json.Unmarshal(data, &texts); err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if len(texts[2]) > 0 {
		cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !cfg.ClientCAs.AppendCertsFromPEM(texts[2]) {
			return nil, errors.New("the file of -tls-client-ca has no certificate")
		}
	}
	if clientName != "" {
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname(clientName) }
	}
	return cfg, nil
}

// config returns the configuration of a server.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// run follows the files until ctx ends. Files that cannot be used are logged, and those before stay in use.
func (c *certificates) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.poller.Wait(time.Second)
			return
		case <-tick.C:
		}
		err := c.poller.Look(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, filepoll.ErrUnsettled):
		case err == nil:
			c.logged = ""
		case err.Error() != c.logged:
			c.logged = err.Error()
			c.log.Warn("hybridlimit-rls: the TLS files cannot be used; those before stay in use; correct the files", slog.Any("error", err))
		}
	}
}
