// Playground is a page that shows rate limiters at work. Each algorithm is a card with buttons, and so is a limit with
// classes. A fleet of hybrid limiters runs under load, and so do calls in flight. The buttons kill, hang, slow and wipe
// its Redis. It needs only Go and a browser.
//
//	go run ./examples/playground
//	go run ./examples/playground -redis redis://localhost:6379/0
//
// The cards are limiters of package local behind httplimit. http://ADDR/try/token-bucket answers like such a service,
// also to curl. The processes of the fleet are hybrid hubs in this program. Each has its own client and connection,
// where the faults are injected.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

// config has the values of the flags.
type config struct {
	addr  string
	redis *redis.Options // nil: embedded
	// history is the time under load before the address of the page is printed.
	history time.Duration
}

const maxHistory = time.Minute // as much as the charts show

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	var at string
	fs := flag.NewFlagSet("playground", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&c.addr, "addr", "127.0.0.1:8089", "serve on `host:port`; port 0 takes a free one")
	fs.StringVar(&at, "redis", "", "use the Redis at `URL`, redis://user:password@host:port/db; empty: one in this program")
	fs.DurationVar(&c.history, "history", 15*time.Second, "let the fleet run for this `time` before the page is announced; at most 1m")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("%w: unexpected argument %q", errUsage, fs.Arg(0))
	}
	if c.history < 0 || c.history > maxHistory {
		return c, fmt.Errorf("%w: -history (%v) must be 0 to %v", errUsage, c.history, maxHistory)
	}
	if at != "" {
		opts, err := redis.ParseURL(at)
		if err != nil {
			return c, fmt.Errorf("%w: -redis: %w", errUsage, withoutSecret(at, err))
		}
		c.redis = opts
	}
	return c, nil
}

var errURL = errors.New("must be redis://user:password@host:port/db, with %25, %2F and %40 for %, / and @ in the password; the URL is not shown because it may have a password")

// withoutSecret returns the error of a Redis URL without its secrets. If a password is not escaped, parts of it may be
// in any part of the URL and of the error. So if the URL may have a password, the error has only the expected form.
func withoutSecret(text string, err error) error {
	var parse *url.Error
	switch {
	case strings.Contains(text, "@"):
		return errURL
	case errors.As(err, &parse):
		return parse.Err
	}
	return err
}

// start serves the page until ctx ends. It returns after everything that it started has ended. The one line to out has
// the address of the page, when the page has a history. The page is served at once, and notes gets its address at once.
func start(ctx context.Context, args []string, out, notes io.Writer) error {
	c, err := parseFlags(args, notes)
	if err != nil {
		return err
	}
	redis.SetLogger(&logging.VoidLogger{}) // one line for each connection that fails while Redis is away
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("%w (another -addr?)", err)
	}
	store := newStore(c.redis)
	defer store.close()
	if err := store.ping(ctx); err != nil {
		listener.Close()
		return fmt.Errorf("no Redis at %s: %w", store.name(), err)
	}
	p, err := newPlayground(store)
	if err != nil {
		listener.Close()
		return err
	}
	defer p.close()
	host, _, _ := net.SplitHostPort(c.addr) // valid, because Listen succeeded
	server := &http.Server{Handler: p.handler(host), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	at := listener.Addr()
	if !loopback(at) {
		fmt.Fprintf(notes, "Anyone who can reach %s over the network can use the playground and break its Redis. For this machine only, use -addr 127.0.0.1:8089.\n", at)
	}
	if c.history > 0 {
		fmt.Fprintf(notes, "The fleet has started. In %v its page has a history: http://%s\n", c.history, shown(at))
	}
	history := time.After(c.history)
	for serving := true; serving; {
		select {
		case err = <-ended:
			return err
		case <-history:
			fmt.Fprintf(out, "The playground is at http://%s (Ctrl-C ends it). Redis: %s.\n", shown(at), store.name())
		case <-ctx.Done():
			serving = false
		}
	}
	p.feed.close() // otherwise Shutdown would wait until the pages are closed
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if server.Shutdown(bounded) != nil {
		server.Close()
	}
	<-ended
	return nil
}

// loopback reports whether only this machine can reach an address.
func loopback(addr net.Addr) bool {
	at, ok := addr.(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// shown returns an address for a browser on this machine.
func shown(addr net.Addr) string {
	if at, ok := addr.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		return fmt.Sprintf("localhost:%d", at.Port)
	}
	return addr.String()
}
