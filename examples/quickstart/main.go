// Quickstart shows a hybrid limiter at work: several processes share one limit
// through a Redis, which is killed in the middle of the run and comes back
// empty. It starts all of them itself; nothing but Go is needed.
//
//	go run ./examples/quickstart
//
// It ends with a picture of what was admitted, and with a verdict that holds it
// against the guarantees of package hybrid. The exit status is 1 when one of
// them, or anything else that the verdict lists, did not hold.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var err error
	switch role, arg := os.Getenv(roleVar), os.Getenv(argVar); role {
	case "":
		os.Exit(demonstrate(os.Args[1:]))
	case roleWorker:
		if err = runWorker(arg); err != nil {
			newOutbox(os.Stdout).send(message{Kind: kindFailed, Error: err.Error()})
		}
	case roleEmbedded:
		err = runServer(runEmbedded, arg)
	case roleRedisServer:
		err = runServer(runRedisServer, arg)
	default:
		err = fmt.Errorf("%s=%s: no such role", roleVar, role)
		fmt.Fprintln(os.Stderr, "quickstart:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

func runWorker(arg string) error {
	var j job
	if err := json.Unmarshal([]byte(arg), &j); err != nil {
		return err
	}
	return work(j)
}

// runServer tells the parent what went wrong in place of serverUp.
func runServer(run func(addr string) error, addr string) error {
	err := run(addr)
	if err != nil {
		fmt.Println(err)
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// demonstrate is the parent process; it returns the exit status.
func demonstrate(args []string) int {
	c, err := parseFlags(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		return 2
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { <-signals; cancel(errInterrupted) }()

	r, err := newRun(c, os.Stdout)
	if err == nil {
		err = r.play(ctx)
	}
	r.close()
	r.board.flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nquickstart:", err)
		return 1
	}
	v := judge(r.record)
	conclude(os.Stdout, r.record, &r.board.sum, v)
	if !v.ok() {
		return 1
	}
	return 0
}
