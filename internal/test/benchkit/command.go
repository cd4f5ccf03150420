package benchkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
)

// Main runs a command until it ends or is interrupted.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Publish prints a page, and also writes it to a file if there is a name.
func Publish(page, file string) error {
	fmt.Print(page)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(page), 0o644)
}

// Spread runs f on n goroutines, and waits for all.
func Spread(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
