package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// RedisTLS has the files for TLS to Redis. The zero RedisTLS trusts the authorities of the system and shows no
// certificate.
type RedisTLS struct {
	CA, Cert, Key string

	always  bool // also without rediss:// in the URL
	anyName bool // the name in the certificate of Redis is not compared
}

// check reads the files, so that a wrong one is an error at the start.
func (f RedisTLS) check(bad *hybridlimit.Violations, encrypted bool) {
	if (f.CA != "" || f.Cert != "" || f.Key != "") && !encrypted {
		bad.Add("-redis-ca, -redis-cert, -redis-key", strings.Join([]string{f.CA, f.Cert, f.Key}, ", "), "need a rediss:// URL in -redis")
	}
	if (f.Cert == "") != (f.Key == "") {
		bad.Add("-redis-cert, -redis-key", f.Cert+", "+f.Key, "must be set together")
		return
	}
	if _, err := f.roots(); err != nil {
		bad.Add("-redis-ca", f.CA, err.Error())
	}
	if f.Cert == "" {
		return
	}
	if _, err := f.own(); err != nil {
		bad.Add("-redis-cert", f.Cert, "cannot be used with -redis-key: "+err.Error())
	}
}

func (f RedisTLS) roots() (*x509.CertPool, error) {
	if f.CA == "" {
		return nil, nil //nolint:nilnil // the authorities of the system
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("has no certificate")
	}
	return pool, nil
}

func (f RedisTLS) own() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	return &pair, err
}

// config returns the configuration of connections. Each connection reads the certificate of the client again.
func (f RedisTLS) config(insecure bool) (*tls.Config, error) {
	roots, err := f.roots()
	if err != nil {
		return nil, err
	}
	// Without a ServerName each server of a cluster is compared with its own address.
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, InsecureSkipVerify: insecure || f.anyName}
	if f.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.own() }
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
