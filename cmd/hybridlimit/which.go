package main

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/httplimit"
)

// which is the flags that select a key. All commands about a key have them.
type which struct {
	text         string // -for-key
	user         string
	ip           string
	bits4, bits6 int
	apiKey       string // "-": read from standard input
	bearer       string // "-": read from standard input
	header       string
	secretFile   string
	digest       string
	offline      bool // the command asks no Redis, so it has no -digest

	secret hybridlimit.Secret // read from secretFile
	sent   string             // read from standard input
}

// add adds the flags.
func (w *which) add(fs *flag.FlagSet) {
	fs.StringVar(&w.text, "for-key", "", "the `key` as text, as LimitFor gets it, or in double quotes as list prints it")
	fs.StringVar(&w.user, "user", "", "instead of a key: the `name` of a user, for a key of httplimit.User or grpclimit.User")
	fs.StringVar(&w.ip, "ip", "", "instead of a key: the client's `address`, for a key of ClientIP, PeerIP or Peer")
	fs.IntVar(&w.bits4, "ipv4-bits", 32, "for -ip: the value of IPConfig.IPv4Bits")
	fs.IntVar(&w.bits6, "ipv6-bits", 64, "for -ip: the value of IPConfig.IPv6Bits")
	fs.StringVar(&w.apiKey, "api-key", "", "instead of a key: `-` reads an API key from standard input, for a key of httplimit.APIKey; never pass the API key itself, because a shell's history would keep it")
	fs.StringVar(&w.header, "header", "X-Api-Key", "for -api-key: the `name` of the API key's header")
	fs.StringVar(&w.bearer, "bearer", "", "instead of a key: `-` reads a bearer token from standard input, for a key of httplimit.Bearer")
	fs.StringVar(&w.secretFile, "secret-file", "", "for -user, -api-key and -bearer: `file` with the secret of the key function; a newline at the end of the file is ignored")
	if !w.offline {
		fs.StringVar(&w.digest, "digest", "", "instead of a key: the `key_digest` of a log line; finding it takes a scan, unless keys are hashed")
	}
}

// given returns the number of flags that name a key.
func (w *which) given() (n int) {
	for _, s := range []string{w.text, w.user, w.ip, w.apiKey, w.bearer, w.digest} {
		if s != "" {
			n++
		}
	}
	return n
}

// flags names the flags that name a key.
func (w *which) flags() string {
	if w.offline {
		return "-for-key, -user, -ip, -api-key and -bearer"
	}
	return "-for-key, -user, -ip, -api-key, -bearer and -digest"
}

// argument makes the argument of the command the text of the key, if there is one. It adds a violation unless there is
// exactly one key.
func (w *which) argument(bad *hybridlimit.Violations, args []string) {
	if w.given() == 0 && len(args) == 1 {
		w.text = args[0]
		if w.text == "" {
			bad.Add("arguments", "[key]", hybridlimit.ErrEmptyKey.Error())
		}
		return
	}
	if w.given() != 1 || len(args) > 0 {
		bad.Add("arguments", args, "must be one key, or one of "+w.flags())
	}
}

// check adds a violation for each invalid flag, and reads the secret and standard input.
func (w *which) check(bad *hybridlimit.Violations, in io.Reader) {
	if w.given() > 1 {
		bad.Add("arguments", w.given(), "name more than one key: use one of "+w.flags())
	}
	if strings.HasPrefix(w.text, `"`) {
		if text, err := strconv.Unquote(w.text); err == nil {
			w.text = text
		}
	}
	if err := hybridlimit.CheckRequest(w.text, 1, maxKeyBytes); w.text != "" && err != nil {
		bad.Add("-for-key", "[key]", err.Error())
	}
	for _, s := range []struct{ flag, value, what string }{{"-api-key", w.apiKey, "the API key"}, {"-bearer", w.bearer, "the token"}} {
		switch s.value {
		case "":
		case "-":
			w.sent = sentIn(bad, in, s.flag)
		default:
			bad.Add(s.flag, "[secret]", "must be -, with "+s.what+" in standard input")
		}
	}
	if w.apiKey != "" && w.header == "" {
		bad.Add("-header", w.header, "must not be empty")
	}
	if w.digest != "" {
		if sum, err := base64.RawURLEncoding.DecodeString(w.digest); err != nil || len(sum) != 16 {
			bad.Add("-digest", w.digest, "must be a key_digest of 22 characters")
		}
	}
	if w.ip != "" {
		if _, err := netip.ParseAddr(w.ip); err != nil {
			bad.Add("-ip", w.ip, "must be an IP address without a port")
		}
		if _, err := w.clientIP(); err != nil {
			bad.Add("-ipv4-bits, -ipv6-bits", fmt.Sprint(w.bits4, ", ", w.bits6), "must be 1 to 32 and 1 to 128")
		}
	}
	w.secret = secretOf(bad, "-secret-file", w.secretFile)
	if w.secret != "" && w.user == "" && w.apiKey == "" && w.bearer == "" {
		bad.Add("-secret-file", w.secretFile, "needs -user, -api-key or -bearer")
	}
}

// clientIP returns the KeyFunc for -ip.
func (w *which) clientIP() (httplimit.KeyFunc, error) {
	return httplimit.ClientIP(httplimit.IPConfig{IPv4Bits: w.bits4, IPv6Bits: w.bits6})
}

// key returns the text of the key, unless -digest is set. Call check before.
func (w *which) key() (string, error) {
	switch {
	case w.user != "":
		return clientkey.User(w.secret, w.user), nil
	case w.ip != "":
		of, err := w.clientIP()
		if err != nil {
			return "", err
		}
		return of(&http.Request{RemoteAddr: w.ip}), nil
	case w.apiKey != "":
		return clientkey.APIKey(w.secret, w.header, w.sent), nil
	case w.bearer != "":
		return clientkey.Bearer(w.secret, w.sent), nil
	}
	return w.text, nil
}

// sentIn reads a secret of a client from standard input, as a server gets it.
func sentIn(bad *hybridlimit.Violations, in io.Reader, name string) string {
	text, err := io.ReadAll(io.LimitReader(in, maxKeyBytes+1))
	sent := strings.Trim(line(text), " \t") // as a server trims a header
	switch {
	case err != nil:
		bad.Add(name, "[secret]", "cannot be read from standard input: "+err.Error())
	case sent == "" || len(text) > maxKeyBytes:
		bad.Add(name, "[secret]", fmt.Sprintf("must be 1 to %d bytes in standard input", maxKeyBytes))
	}
	return sent
}

// keyText is the command key.
func keyText(fs *flag.FlagSet, c *connection) job {
	key := &which{offline: true}
	key.add(fs)
	var j job
	j.check = func(bad *hybridlimit.Violations, args []string) {
		key.argument(bad, args)
		key.check(bad, c.in)
	}
	j.do = func(_ context.Context, _ []string, out *printer) error {
		text, err := key.key()
		if err != nil {
			return err
		}
		out.sets(struct {
			Key string `json:"key"`
		}{text})
		fmt.Fprintln(out, text)
		return nil
	}
	return j
}
