package server

import (
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

// parsed returns the settings of variables of the environment.
func parsed(t *testing.T, env map[string]string, args ...string) (Settings, error) {
	t.Helper()
	return ParseFlags(append([]string{"-config", "c"}, args...), func(name string) string { return env[name] }, io.Discard)
}

// TestEnvironment has the variables of envoyproxy/ratelimit and what each one sets.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		of   func(s Settings) any
		want any
	}{
		{"gRPC", nil, func(s Settings) any { return s.GRPC }, ":8081"},
		{"gRPC on IPv6", map[string]string{"GRPC_HOST": "::1", "GRPC_PORT": "9"}, func(s Settings) any { return s.GRPC }, "[::1]:9"},
		{"gRPC on a socket", map[string]string{"GRPC_UDS": "/tmp/x.sock", "GRPC_PORT": "9"}, func(s Settings) any { return s.GRPC }, "unix:/tmp/x.sock"},
		{"HTTP on IPv6", map[string]string{"HOST": "::"}, func(s Settings) any { return s.HTTP }, "[::]:8080"},
		{"age", nil, func(s Settings) any { return s.Age }, Age{24 * time.Hour, time.Hour}},
		{"other ages", map[string]string{"GRPC_MAX_CONNECTION_AGE": "5m", "GRPC_MAX_CONNECTION_AGE_GRACE": "10s"}, func(s Settings) any { return s.Age }, Age{5 * time.Minute, 10 * time.Second}},
		{"no metrics", nil, func(s Settings) any { return s.Metrics }, ""},
		{"metrics", map[string]string{"USE_PROMETHEUS": "true"}, func(s Settings) any { return s.Metrics + s.Path }, ":9090/metrics"},
		{"metrics off", map[string]string{"USE_PROMETHEUS": "false", "PROMETHEUS_ADDR": ":9"}, func(s Settings) any { return s.Metrics }, ""},
		{"metrics elsewhere", map[string]string{"PROMETHEUS_ADDR": ":9", "PROMETHEUS_PATH": "/m"}, func(s Settings) any { return s.Metrics + s.Path }, ":9/m"},
		{"times", map[string]string{"USE_PROMETHEUS": "true"}, func(s Settings) any { return s.Timed }, true},
		{"no debug", map[string]string{"DEBUG_HOST": "h"}, func(s Settings) any { return s.Debug }, ""},
		{"debug", map[string]string{"DEBUG_PORT": "6070"}, func(s Settings) any { return s.Debug }, ":6070"},
		{"log", nil, func(s Settings) any { return s.Log }, Log{slog.LevelInfo, false}},
		{"log level", map[string]string{"LOG_LEVEL": "WARNING", "LOG_FORMAT": "JSON"}, func(s Settings) any { return s.Log }, Log{slog.LevelWarn, true}},
		{"near", map[string]string{"NEAR_LIMIT_RATIO": "0.5"}, func(s Settings) any { return s.Service.NearRatio }, 0.5},
		{"costs", map[string]string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true"}, func(s Settings) any { return s.Service.AskCosts }, true},
		{"start", map[string]string{"FORCE_START_WITHOUT_INITIAL_CONFIG": "true"}, func(s Settings) any { return s.NoWait }, true},
		{"domain", map[string]string{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true"}, func(s Settings) any { return s.Domain }, true},
		{"backend", map[string]string{"BACKEND_TYPE": "redis"}, func(s Settings) any { return len(s.Warnings) }, 0},
		{"no effect, and off", map[string]string{"REDIS_PERSECOND": "false", "USE_STATSD": "false"}, func(s Settings) any { return len(s.Warnings) }, 0},
		{
			"no effect",
			map[string]string{"REDIS_PERSECOND": "true", "USE_STATSD": "true", "USE_DOG_STATSD": "1", "TRACING_ENABLED": "true", "PROMETHEUS_MAPPER_YAML": "/m", "EXTRA_TAGS": "a:b", "LOCAL_CACHE_SIZE_IN_BYTES": "1000"},
			func(s Settings) any { return len(s.Warnings) }, 7,
		},
	} {
		s, err := parsed(t, c.env)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := c.of(s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestBadEnvironment has all errors in one.
func TestBadEnvironment(t *testing.T) {
	_, err := parsed(t, map[string]string{
		"BACKEND_TYPE": "memcache", "GRPC_MAX_CONNECTION_AGE": "long", "NEAR_LIMIT_RATIO": "most", "LOG_LEVEL": "loud", "LOG_FORMAT": "xml", "PROMETHEUS_PATH": "m", "PROMETHEUS_ADDR": ":9",
	}, "-near-ratio", "NaN", "-max-connection-age-grace", "-1s", "-costs", "some")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`BACKEND_TYPE ("memcache") must be redis: there is no other backend`, `GRPC_MAX_CONNECTION_AGE ("long") must be a duration, such as 24h`,
		`NEAR_LIMIT_RATIO ("most") must be a number`, `-log-level ("loud") must be debug, info, warn or error`, `-log-format ("xml") must be text or json`,
		`-metrics-path ("m") must be a path`, `-near-ratio (NaN) must be 0 to 1`, `-max-connection-age-grace`, `-costs ("some") must be booked or asked`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// TestOddPathsAndSockets are errors, and no panics at the start.
func TestOddPathsAndSockets(t *testing.T) {
	for _, path := range []string{"/{x", "/{}", "/{x...}/a", "/{x}", "/a b", "//", "/a/../b", "/a/"} {
		if _, err := parsed(t, nil, "-metrics", ":0", "-metrics-path", path); err == nil || !strings.Contains(err.Error(), "-metrics-path") {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, flag := range []string{"-grpc", "-http", "-metrics", "-debug"} {
		for _, address := range []string{"unix:", "unix://", "unix:///"} {
			if _, err := parsed(t, nil, flag, address); err == nil || !strings.Contains(err.Error(), flag+` ("`+address+`") must have the path of a socket`) {
				t.Errorf("%s %s: %v", flag, address, err)
			}
		}
	}
}
