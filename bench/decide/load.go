package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// subject is a limiter under load.
type subject struct {
	name  string
	allow allow
}

// load is a number of callers that ask without a pause.
type load struct {
	callers, keys int
	lasts         time.Duration
}

// figures has decisions/s, p50 and p99 in µs, CPU of Redis and of the process in µs a decision,
// and allocations of a decision.
type figures [6]float64

// compare measures the subjects in turns. It returns the median of each figure.
func compare(ctx context.Context, admin *redis.Client, subjects []subject, l load, rounds int) ([]figures, error) {
	all := make([][]figures, len(subjects))
	for round := -1; round < rounds; round++ { // round -1 warms up: connections, scripts, keys
		for i := range subjects {
			i = (i + max(round, 0)) % len(subjects)
			f, err := l.measure(ctx, admin, subjects[i].allow)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[i].name, err)
			}
			if round >= 0 {
				all[i] = append(all[i], f)
			}
		}
	}
	out := make([]figures, len(subjects))
	for i, rows := range all {
		for j := range out[i] {
			v := make([]float64, len(rows))
			for k, f := range rows {
				v[k] = f[j]
			}
			slices.Sort(v)
			out[i][j] = (v[len(v)/2] + v[(len(v)-1)/2]) / 2
		}
	}
	return out, nil
}

// measure runs the load once.
func (l load) measure(ctx context.Context, admin *redis.Client, ask allow) (f figures, err error) {
	names := make([]string, l.keys)
	for i := range names {
		names[i] = fmt.Sprintf("customer-%08d", i)
	}
	redisBefore, err := redisCPU(ctx, admin)
	if err != nil {
		return f, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	own := processCPU()
	var stop atomic.Bool
	var failed atomic.Pointer[error]
	took := make([][]time.Duration, l.callers)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range l.callers {
		wg.Go(func() {
			mine := make([]time.Duration, 0, 1<<12)
			for at := i * 7919; !stop.Load(); at += 31 {
				from := time.Now()
				if err := ask(ctx, names[at%len(names)]); err != nil {
					failed.Store(&err)
					return
				}
				mine = append(mine, time.Since(from))
			}
			took[i] = mine
		})
	}
	time.Sleep(l.lasts)
	stop.Store(true)
	wg.Wait()
	lasted := time.Since(began)
	own = processCPU() - own
	runtime.ReadMemStats(&after)
	redisAfter, err := redisCPU(ctx, admin)
	if err != nil {
		return f, err
	}
	if err := failed.Load(); err != nil {
		return f, *err
	}
	times := slices.Concat(took...)
	slices.Sort(times)
	n := float64(len(times))
	return figures{
		n / lasted.Seconds(),
		µs(times[len(times)/2]),
		µs(times[len(times)*99/100]),
		µs(redisAfter-redisBefore) / n,
		µs(own) / n,
		float64(after.Mallocs-before.Mallocs) / n,
	}, nil
}

func µs(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// processCPU returns the CPU time of this process.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// redisCPU returns the CPU time of Redis, user and system together.
func redisCPU(ctx context.Context, admin *redis.Client) (time.Duration, error) {
	text, err := admin.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			s, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("INFO cpu: %s is %q", name, value)
			}
			sum += s
		}
	}
	return time.Duration(sum * float64(time.Second)), nil
}
