package runner_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

var names = lua.Names{Prefix: "hl", Tags: lua.DefaultTags}

// pulse returns a heartbeat of a process of the group g.
func pulse(process string, expiry time.Duration, leave bool) wire.Pulse {
	return wire.Pulse{
		Group: names.Group("g"), Directory: names.Groups(), Changed: names.Changed(), Names: names.GroupNames("g"), Wanted: names.Wanted(),
		ID: "g", Process: process, Expiry: expiry, Leave: leave, TTL: time.Minute,
	}
}

func withRunner(t *testing.T, f func(t *testing.T, bubble *redistest.Bubble, r *runner.Runner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		bubble := redistest.NewBubble(t)
		r, err := runner.New(bubble.Client(nil), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f(t, bubble, r)
	})
}

func inFleet(t *testing.T, f func(t *testing.T, bubble *redistest.Bubble, beat func(process string, leave bool, want int64))) {
	t.Helper()
	withRunner(t, func(t *testing.T, bubble *redistest.Bubble, r *runner.Runner) {
		f(t, bubble, func(process string, leave bool, want int64) {
			t.Helper()
			if got, err := r.Heartbeat(t.Context(), pulse(process, 3*time.Second, leave)); got.Alive != want || err != nil {
				t.Errorf("heartbeat of %s: %+v, %v; want %d alive", process, got, err, want)
			}
		})
	})
}

func TestHeartbeatCounts(t *testing.T) {
	inFleet(t, func(_ *testing.T, _ *redistest.Bubble, beat func(string, bool, int64)) {
		for i := range 5 {
			beat(fmt.Sprint(i), false, int64(i+1))
		}
		beat("0", false, 5) // again
		beat("1", true, 4)
		beat("1", true, 4) // again
		beat("nobody", true, 4)
	})
}

// A process that is silent for longer than the expiry no longer counts.
func TestHeartbeatExpires(t *testing.T) {
	inFleet(t, func(_ *testing.T, _ *redistest.Bubble, beat func(string, bool, int64)) {
		beat("a", false, 1)
		time.Sleep(2 * time.Second)
		beat("b", false, 2)
		time.Sleep(time.Second)
		beat("b", false, 2) // a is as old as the expiry
		time.Sleep(time.Microsecond)
		beat("b", false, 1)
		beat("a", false, 2)
	})
}

// The answer to a heartbeat has the time at which the process's last heartbeat expires. From
// it, a process sees that Redis has forgotten it.
func TestHeartbeatRemembersTheLast(t *testing.T) {
	withRunner(t, func(t *testing.T, bubble *redistest.Bubble, r *runner.Runner) {
		var last int64
		for i, step := range []struct {
			wipe, leave bool
			pause       time.Duration
			knows       bool
		}{
			{},
			{knows: true},
			{pause: 2 * time.Second, knows: true},
			{wipe: true},
			{knows: true},
			{leave: true, knows: true},
			{},
			{pause: 10 * time.Second, knows: true},
			{pause: 2 * time.Minute},
		} {
			time.Sleep(step.pause + time.Millisecond)
			if step.wipe {
				bubble.Mini.FlushAll()
			}
			want := int64(0)
			if step.knows {
				want = last
			}
			got, err := r.Heartbeat(t.Context(), pulse("me", 3*time.Second, step.leave))
			if err != nil || got.Before != want || got.Now != time.Now().UnixMicro() {
				t.Errorf("step %d: %+v, %v; want before %d", i, got, err, want)
			}
			last = got.Now + 3_000_000
		}
	})
}

// Nothing outlives the fleet by more than two minutes, or by the TTL of its directory.
func TestHeartbeatsLeaveNothingBehind(t *testing.T) {
	inFleet(t, func(t *testing.T, bubble *redistest.Bubble, beat func(string, bool, int64)) {
		beat("a", false, 1)
		time.Sleep(2 * time.Minute)
		if keys := bubble.Mini.Keys(); len(keys) != 0 {
			t.Errorf("left behind: %q", keys)
		}
		beat("a", false, 1)
		beat("a", true, 0)
		if keys := bubble.Mini.Keys(); len(keys) != 0 {
			t.Errorf("left behind by the last process: %q", keys)
		}
	})
}

// TestHeartbeatOnRedis runs on a real Redis. Its scripts are flushed, and it refuses an
// invalid expiry.
func TestHeartbeatOnRedis(t *testing.T) {
	server := redistest.New(t)
	rdb := server.Client(t)
	r, err := runner.New(rdb, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 3 {
		if got, err := r.Heartbeat(t.Context(), pulse(fmt.Sprint(i), 30*time.Second, false)); got.Alive != int64(i+1) || err != nil {
			t.Errorf("heartbeat = %+v, %v", got, err)
		}
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.Heartbeat(t.Context(), pulse("0", 0, false)); got.Now != 0 || !errors.Is(err, wire.ErrRefused) {
		t.Errorf("with an expiry of 0: %+v, %v", got, err)
	}
	rdb.Set(t.Context(), "{3}string", "v", 0)
	odd := pulse("0", time.Second, false)
	odd.Group = "{3}string"
	if got, err := r.Heartbeat(t.Context(), odd); got.Alive != 1 || err != nil {
		t.Errorf("on a string, which is replaced: %+v, %v", got, err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Heartbeat(t.Context(), odd); got.Now != 0 || err == nil || errors.Is(err, wire.ErrRefused) || errors.Is(err, wire.ErrReply) {
		t.Errorf("without memory: %+v, %v", got, err)
	}
}

func TestSettingsAndTheirChanges(t *testing.T) {
	withRunner(t, func(t *testing.T, _ *redistest.Bubble, r *runner.Runner) {
		ctx := t.Context()
		flag, err := r.SetSwitch(ctx, names.Switch("api"), names.Changed(), 3, time.Hour)
		if got, err2 := r.Switch(ctx, names.Switch("api")); err != nil || err2 != nil || got != flag || flag.Switch != 3 {
			t.Errorf("%+v, %v; read %+v, %v", flag, err, got, err2)
		}
		limit, err := r.SetFleetLimit(ctx, names.FleetLimit("api"), names.Changed(), "5/s", time.Hour)
		if got, err2 := r.FleetLimit(ctx, names.FleetLimit("api")); err != nil || err2 != nil || got != limit || limit.Text != "5/s" {
			t.Errorf("%+v, %v; read %+v, %v", limit, err, got, err2)
		}
		beat, err := r.Heartbeat(ctx, pulse("p", time.Second, false))
		if err != nil || beat.Changed < limit.At {
			t.Errorf("%+v, %v", beat, err)
		}
		s, err := r.Settings(ctx, names.Changed(), []wire.Setting{{SwitchKey: names.Switch("api"), LimitKey: names.FleetLimit("api")}}, time.Hour)
		if err != nil || s.Changed != beat.Changed || s.Of[0].Flag != flag || s.Of[0].Limit != limit {
			t.Errorf("%+v, %v", s, err)
		}
		if _, err := r.SetFleetLimit(ctx, names.FleetLimit("api"), names.Changed(), "\n", time.Hour); err == nil {
			t.Error("a limit that is not printable was set")
		}
	})
}
