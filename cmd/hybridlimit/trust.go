package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"os"

	"github.com/hybridlimit/hybridlimit"
)

// trust is the flags of TLS: whom to believe, and who we are.
type trust struct {
	ca, cert, key string

	roots *x509.CertPool    // out of ca
	own   []tls.Certificate // out of cert and key
}

func (t *trust) add(fs *flag.FlagSet) {
	fs.StringVar(&t.ca, "ca", "", "PEM `file` of the authorities that Redis's certificate may be of (default those of the system)")
	fs.StringVar(&t.cert, "cert", "", "PEM `file` with the certificate to show to Redis; needs -key")
	fs.StringVar(&t.key, "key", "", "PEM `file` with its private key")
}

// check reads the files.
func (t *trust) check(bad *hybridlimit.Violations, encrypted bool) {
	for _, f := range []struct{ name, file string }{{"-ca", t.ca}, {"-cert", t.cert}, {"-key", t.key}} {
		if f.file != "" && !encrypted {
			bad.Add(f.name, f.file, "is for a URL of rediss://")
		}
	}
	if t.ca != "" {
		t.roots = x509.NewCertPool()
		text, err := os.ReadFile(t.ca)
		switch {
		case err != nil:
			bad.Add("-ca", t.ca, "cannot be read: "+err.Error())
		case !t.roots.AppendCertsFromPEM(text):
			bad.Add("-ca", t.ca, "has no certificate")
		}
	}
	switch {
	case t.cert == "" && t.key == "":
	case t.cert == "":
		bad.Add("-key", t.key, "needs -cert")
	case t.key == "":
		bad.Add("-cert", t.cert, "needs -key")
	default:
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			bad.Add("-cert", t.cert, "cannot be used: "+err.Error())
		}
		t.own = []tls.Certificate{pair}
	}
}

// apply is for the configuration of a rediss:// URL; others have none.
func (t *trust) apply(c *tls.Config) {
	if c == nil {
		return
	}
	if t.roots != nil {
		c.RootCAs = t.roots
	}
	c.Certificates = t.own
}
