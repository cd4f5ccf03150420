package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"os"

	"github.com/hybridlimit/hybridlimit"
)

// trust is the flags of TLS.
type trust struct {
	ca, cert, key string

	roots *x509.CertPool    // read from ca
	own   []tls.Certificate // read from cert and key
}

// add adds the flags.
func (t *trust) add(fs *flag.FlagSet) {
	fs.StringVar(&t.ca, "tls-ca", "", "PEM `file` with the authorities that may sign Redis's certificate (default: those of the system)")
	fs.StringVar(&t.cert, "tls-cert", "", "PEM `file` with the client certificate; needs -tls-key")
	fs.StringVar(&t.key, "tls-key", "", "PEM `file` with the private key of -tls-cert")
}

// check reads the files, and adds a violation for each invalid flag.
func (t *trust) check(bad *hybridlimit.Violations, encrypted bool) {
	for _, f := range []struct{ name, file string }{{"-tls-ca", t.ca}, {"-tls-cert", t.cert}, {"-tls-key", t.key}} {
		if f.file != "" && !encrypted {
			bad.Add(f.name, f.file, "needs a rediss:// URL")
		}
	}
	if t.ca != "" {
		t.roots = x509.NewCertPool()
		text, err := os.ReadFile(t.ca)
		switch {
		case err != nil:
			bad.Add("-tls-ca", t.ca, "cannot be read: "+err.Error())
		case !t.roots.AppendCertsFromPEM(text):
			bad.Add("-tls-ca", t.ca, "has no certificate")
		}
	}
	switch {
	case t.cert == "" && t.key == "":
	case t.cert == "":
		bad.Add("-tls-key", t.key, "needs -tls-cert")
	case t.key == "":
		bad.Add("-tls-cert", t.cert, "needs -tls-key")
	default:
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			bad.Add("-tls-cert", t.cert, "cannot be used: "+err.Error())
		}
		t.own = []tls.Certificate{pair}
	}
}

// apply sets the certificates in the TLS configuration of a URL. c is nil unless the URL is rediss://.
func (t *trust) apply(c *tls.Config) {
	if c == nil {
		return
	}
	if t.roots != nil {
		c.RootCAs = t.roots
	}
	c.Certificates = t.own
}
