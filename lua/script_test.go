package lua_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/lua"
)

// Redis and go-redis know the scripts by the same names as this package.
func TestScriptSHA(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, script := range lua.Scripts() {
			sha, err := st.rdb.ScriptLoad(context.Background(), script.Source).Result()
			if err != nil || sha != script.SHA || redis.NewScript(script.Source).Hash() != sha {
				t.Errorf("%s, named %s: %v", sha, script.SHA, err)
			}
		}
	})
}

// The head of each file has the sections that this test lists for it.
func TestScriptHeaders(t *testing.T) {
	sections := map[string][]string{
		"common.lua":         {"Numbers", "Kinds"},
		"bucket.lua":         {"State", "Limit", "Expiry", "Source"},
		"lease.lua":          {"State", "Source"},
		"window.lua":         {"State", "Limit", "Expiry", "Source"},
		"windowbooks.lua":    {"State", "Source"},
		"windowlease.lua":    {"State", "Source"},
		"windowcalendar.lua": {"State", "Limit", "Rules", "Source"},
		"log.lua":            {"State", "Limit", "Expiry", "Memory", "Source"},
		"codec.lua":          {"Header", "Limit", "Op", "Envelope"},
		"batch.lua":          {"KEYS", "ARGV", "Reply", "Once", "Errors", "Expiry"},
		"history.lua":        {"KEYS", "ARGV", "Reply", "Expiry"},
		"main.lua":           {},
		"plain.lua":          {"KEYS", "ARGV", "Op", "Limit", "Reply", "Result", "Source", "Time"},
		"short.lua":          {"KEYS", "ARGV", "Reply", "Result", "Source", "Time"},
		"groups.lua":         {"State", "Bound", "Lost"},
		"members.lua":        {"State", "Lost", "Expiry"},
		"fleet.lua":          {"KEYS", "ARGV", "Reply", "Expiry"},
		"changed.lua":        {"State", "Lost", "Expiry"},
		"switch.lua":         {"State", "Lost", "Expiry"},
		"fleetlimit.lua":     {"State", "Lost", "Expiry"},
		"wanted.lua":         {"State", "Bound", "Lost", "Expiry"},
		"paused.lua":         {"State", "Bound", "Lost", "Expiry"},
		"keylimits.lua":      {"State", "Bound", "Lost", "Expiry"},
		"setkeys.lua":        {"KEYS", "ARGV", "Reply", "Expiry"},
		"settings.lua":       {"KEYS", "ARGV", "Reply", "Expiry"},
		"setswitch.lua":      {"KEYS", "ARGV", "Reply", "Expiry"},
		"setlimit.lua":       {"KEYS", "ARGV", "Reply", "Expiry"},
		"permits.lua":        {"KEYS", "ARGV", "Reply", "Once", "State", "Lost", "Expiry"},
		"rates.lua":          {"KEYS", "ARGV", "Reply", "Once", "State", "Lost", "Expiry", "Source"},
	}
	for name, source := range lua.Sources {
		want, ok := sections[name]
		if !ok || !strings.HasPrefix(source, "-- ") {
			t.Errorf("%s: no head, or not in this test", name)
		}
		if lines := strings.Count(source, "\n"); lines > 270 {
			t.Errorf("%s: %d lines, at most 270", name, lines)
		}
		var head []string
		for line := range strings.Lines(source) {
			if !strings.HasPrefix(line, "--") {
				break
			}
			head = append(head, line)
		}
		for _, section := range want {
			if !strings.Contains(strings.Join(head, ""), "\n-- "+section+":") {
				t.Errorf("%s: no section %s", name, section)
			}
		}
	}
}

// The scripts may use commands of Redis 6.2, and the part of Lua on which Redis and
// miniredis agree. tostring and .. of a number lose digits of a timestamp.
func TestScriptsKeepToTheCommonGround(t *testing.T) {
	commands := map[string]bool{
		"TIME": true, "MGET": true, "SET": true, "ZADD": true, "ZREM": true, "ZCARD": true,
		"ZSCORE": true, "ZRANGEBYSCORE": true, "ZREMRANGEBYSCORE": true, "PEXPIRE": true, "PTTL": true,
		"HMGET": true, "HGETALL": true, "HSET": true, "HDEL": true, "HLEN": true,
		"ZRANGE": true, "ZCOUNT": true, "ZREMRANGEBYRANK": true, "DEL": true,
	}
	call := regexp.MustCompile(`redis\.p?call\(([^,)]*)`)
	banned := regexp.MustCompile(`tostring|cjson|cmsgpack|struct\.|bit\.|os\.|math\.random|redis\.setresp|#!lua|\bgoto\b`)
	for name, source := range lua.Sources {
		for _, m := range call.FindAllStringSubmatch(source, -1) {
			if command := strings.Trim(m[1], "'"); !commands[command] {
				t.Errorf("%s calls %s", name, m[1])
			}
		}
		if found := banned.FindString(source); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
	}
}
