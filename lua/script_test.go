package lua_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/lua"
)

// golden holds the SHA-1 of the scripts that Redis runs. A change of a script shows here in
// review. The question is then: is a fleet correct that runs both versions for a while? If
// it is, copy the sum from the failing test.
var golden = map[string]string{
	"Batch":     "fbebd4e1be50092e3be1e6d9f2878c0f220d9efd",
	"History":   "0bb6409cd66c97f6632d4a275d012aab9ab837b9",
	"Fleet":     "eed6085e20dace2c23dd38615363a76ca6594970",
	"Settings":  "5ce0c7766b7707e797715dd1721116d3ed35fb8a",
	"SetSwitch": "ddaaa7f03bc88ce3fd28e55531ee3febb15e8b1f",
	"SetLimit":  "32e6810f04407c0660294d11612db2f2d8cee0f9",
	"Permits":   "682a3a829d4e750201bedd1c4171ca6739dec64f",
}

func TestGoldenScripts(t *testing.T) {
	for name, script := range map[string]lua.Script{
		"Batch": lua.Batch, "History": lua.History, "Fleet": lua.Fleet, "Settings": lua.Settings, "SetSwitch": lua.SetSwitch, "SetLimit": lua.SetLimit,
		"Permits": lua.Permits,
	} {
		sum := sha1.Sum([]byte(script.Source))
		if got := hex.EncodeToString(sum[:]); got != script.SHA || got != golden[name] {
			t.Errorf("%s has the SHA-1 %s, Script.SHA = %s, want %s", name, got, script.SHA, golden[name])
		}
	}
}

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
		"common.lua":      {"Numbers", "Kinds"},
		"bucket.lua":      {"State", "Limit", "Expiry", "Source"},
		"lease.lua":       {"State", "Source"},
		"window.lua":      {"State", "Limit", "Expiry", "Source"},
		"windowlease.lua": {"State", "Source"},
		"log.lua":         {"State", "Limit", "Expiry", "Memory", "Source"},
		"codec.lua":       {"Header", "Limit", "Op", "Envelope"},
		"batch.lua":       {"KEYS", "ARGV", "Reply", "Once", "Errors", "Expiry"},
		"history.lua":     {"KEYS", "ARGV", "Reply", "Expiry"},
		"main.lua":        {},
		"plain.lua":       {"KEYS", "ARGV", "Op", "Limit", "Reply", "Result", "Source", "Time"},
		"groups.lua":      {"State", "Bound", "Lost"},
		"members.lua":     {"State", "Lost", "Expiry"},
		"fleet.lua":       {"KEYS", "ARGV", "Reply", "Expiry"},
		"changed.lua":     {"State", "Lost", "Expiry"},
		"switch.lua":      {"State", "Lost", "Expiry"},
		"fleetlimit.lua":  {"State", "Lost", "Expiry"},
		"settings.lua":    {"KEYS", "ARGV", "Reply", "Expiry"},
		"setswitch.lua":   {"KEYS", "ARGV", "Reply", "Expiry"},
		"setlimit.lua":    {"KEYS", "ARGV", "Reply", "Expiry"},
		"permits.lua":     {"KEYS", "ARGV", "Reply", "Once", "State", "Lost", "Expiry"},
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
