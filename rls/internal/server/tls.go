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
	"os"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/filepoll"
)

// certificates has the TLS configuration of new connections. It follows its files.
type certificates struct {
	current atomic.Pointer[tls.Config]
	poller  filepoll.Poller[*tls.Config]
	log     *slog.Logger
}

// newCertificates reads the files.
func newCertificates(ctx context.Context, files TLS, log *slog.Logger) (*certificates, error) {
	c := &certificates{log: log}
	c.poller = filepoll.Poller[*tls.Config]{
		Read: func() ([]byte, error) {
			var texts [3][]byte
			for i, name := range [...]string{files.Cert, files.Key, files.ClientCA} {
				var err error
				if name != "" {
					texts[i], err = readRegular(name, maxBytes)
				}
				if err != nil {
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
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		if cfg.ClientCAs, err = authorities(texts[2]); err != nil {
			return nil, fmt.Errorf("the file of -tls-client-ca %w", err)
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
	logged := "" // the last error
	follow(ctx, &c.poller, every, func(err error) {
		text := fmt.Sprint(err)
		if err != nil && text != logged {
			c.log.Warn("hybridlimit-rls: the TLS files cannot be used; those before stay in use; correct the files", slog.Any("error", err))
		}
		logged = text
	})
}

// ClientTLS has the files for TLS to Redis or a control plane. The zero ClientTLS trusts the authorities of the system and
// shows no certificate.
type ClientTLS struct {
	CA, Cert, Key string

	always  bool // also without rediss:// in the URL
	anyName bool // the name in the certificate of Redis is not compared
}

// check reads the files, so that a wrong one is an error at the start. Of is the beginning of the names of their flags.
func (f ClientTLS) check(of string, bad *adapter.Violations) {
	if (f.Cert == "") != (f.Key == "") {
		bad.Add(of+"-cert, "+of+"-key", f.Cert+", "+f.Key, "must be set together")
		return
	}
	if _, err := f.roots(); err != nil {
		bad.Add(of+"-ca", f.CA, err.Error())
	}
	if f.Cert == "" {
		return
	}
	if _, err := tls.LoadX509KeyPair(f.Cert, f.Key); err != nil {
		bad.Add(of+"-cert", f.Cert, "cannot be used with "+of+"-key: "+err.Error())
	}
}

func (f ClientTLS) roots() (*x509.CertPool, error) {
	if f.CA == "" {
		return nil, nil //nolint:nilnil // the authorities of the system
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	return authorities(text)
}

func authorities(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("has no certificate")
	}
	return pool, nil
}

// config returns the configuration of connections. Each connection reads the certificate of the client again.
func (f ClientTLS) config(insecure bool) (*tls.Config, error) {
	roots, err := f.roots()
	if err != nil {
		return nil, err
	}
	// Without a ServerName each server of a cluster is compared with its own address.
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, InsecureSkipVerify: insecure || f.anyName}
	if f.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
			return &pair, err
		}
	}
	if f.anyName && !insecure {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, cert := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(cert)
			}
			_, err := s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return c, nil
}
