package denylist

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/wire"
)

func load(environ ...string) (Config, error) {
	var c Config
	err := config.Load(environ, &c)
	return c, err
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	c, err := load()
	require.NoError(t, err)
	require.Equal(t, config.Addr("127.0.0.1:9182"), c.General.AdminAddr)
	require.True(t, c.Denylist.Enabled)
	require.False(t, c.Denylist.monitor())
	s := c.Denylist.settings()
	require.Equal(t, 25, s.DailyThreshold)
	require.Equal(t, 14, s.WindowDays)
	require.Equal(t, 5, s.ExceedThreshold)
	require.Equal(t, 25, s.RangeIPThreshold)
	require.Equal(t, 30*24*time.Hour, s.BlockFor(wire.ScopeIP))
	require.Equal(t, 24*time.Hour, s.BlockFor(wire.ScopeRange))
	require.Equal(t, 30*24*time.Hour, s.PruneRetention)
	require.Equal(t, time.Minute, c.Denylist.SweepInterval.Duration())
	require.Equal(t, 45*24*time.Hour, c.Events.MaxAge.Duration())
	fields, err := config.Fields(&Config{})
	require.NoError(t, err)
	require.NotEmpty(t, fields)
}

// TestF18_NonsensicalSettings stop the start with their names.
func TestF18_NonsensicalSettings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"DAILY_THRESHOLD", "WINDOW_DAYS", "EXCEED_THRESHOLD", "BLOCK_DAYS", "RANGE_IP_THRESHOLD", "RANGE_BLOCK_HOURS"} {
		for _, value := range []string{"0", "-1", "10000000000", "1e308", "36500000000000000000", "NaN", "1.5", "ten"} {
			_, err := load("CCNQ_QUEUE_DENYLIST_" + name + "=" + value)
			require.ErrorContains(t, err, "CCNQ_QUEUE_DENYLIST_"+name+`: "`+value+`" is not`)
		}
	}
	for environ, want := range map[string]string{
		"CCNQ_QUEUE_DENYLIST_BLOCK_DAYS=36500":                  "CCNQ_QUEUE_DENYLIST_BLOCK_DAYS",
		"CCNQ_QUEUE_DENYLIST_SWEEP_INTERVAL_MS=0":               "CCNQ_QUEUE_DENYLIST_SWEEP_INTERVAL_MS",
		"CCNQ_QUEUE_DENYLIST_PRUNE_RETENTION_MS=-1":             "CCNQ_QUEUE_DENYLIST_PRUNE_RETENTION_MS",
		"CCNQ_QUEUE_DENYLIST_PRUNE_RETENTION_MS=99999999999999": "more milliseconds than ten years have",
		"CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD=15":               "15 exceeded days never fit into the 14",
		"CCNQ_QUEUE_DENYLIST_WINDOW_DAYS=16":                    "CCNQ_EVENTS_MAX_AGE_MS: must be at least 3974400000",
		"CCNQ_EVENTS_MAX_AGE_MS=3600000":                        "CCNQ_EVENTS_MAX_AGE_MS: must be at least 3801600000",
		"CCNQ_EVENTS_MAX_BYTES=0":                               "CCNQ_EVENTS_MAX_BYTES",
		"CCNQ_QUEUE_DENYLIST_MODE=on":                           "CCNQ_QUEUE_DENYLIST_MODE",
		"CCNQ_TRUSTED_PROXIES=nobody":                           `CCNQ_TRUSTED_PROXIES: "nobody"`,
		"CCNQ_QUEUE_ALLOWLIST=1.2.3.4/99":                       `CCNQ_QUEUE_ALLOWLIST: "1.2.3.4/99"`,
	} {
		_, err := load(environ)
		require.ErrorContains(t, err, want, environ)
	}
}

// TestF18_LongestBlocks blocks for as long as the settings allow, again and
// again, with clocks of edges that are far ahead and far behind.
func TestF18_LongestBlocks(t *testing.T) {
	t.Parallel()
	environ := []string{
		"CCNQ_QUEUE_DENYLIST_BLOCK_DAYS=3650", "CCNQ_QUEUE_DENYLIST_RANGE_BLOCK_HOURS=87600", "CCNQ_QUEUE_DENYLIST_RANGE_IP_THRESHOLD=1",
	}
	for name, start := range map[string]func(s *site) *Service{
		"memory": func(s *site) *Service { return s.start(s.config(environ...), Deps{Memory: true}) },
		"postgres": func(s *site) *Service {
			database, _ := s.database()
			return s.start(s.config(append(database, environ...)...), Deps{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.untilReady(start(s))
			o := s.outbox("o1")
			now := time.Now()
			o.deny(denial{"203.0.113.7", 1 << 30, now}, denial{"203.0.113.8", 1, now})
			s.until("both are blocked", func() bool {
				return s.inForce(wire.ScopeIP, "203.0.113.7") && s.inForce(wire.ScopeRange, "203.0.113.0/24")
			})
			for _, at := range []time.Time{
				now.Add(-20 * 365 * 24 * time.Hour), now.Add(time.Minute), time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC), now,
			} {
				o.deny(denial{"203.0.113.7", 1 << 30, at})
			}
			bound := time.Now().Add(wire.MaxBlock + 5*time.Minute)
			for _, target := range []struct {
				scope wire.Scope
				text  string
			}{{wire.ScopeIP, "203.0.113.7"}, {wire.ScopeRange, "203.0.113.0/24"}} {
				least := now.Add(time.Minute + wire.MaxBlock).Truncate(time.Microsecond)
				s.until("extended, and never shortened", func() bool {
					block, ok := s.key(target.scope, target.text)
					require.True(t, ok)
					require.False(t, block.BlockedUntil.Before(now.Add(wire.MaxBlock).Truncate(time.Microsecond)), block.BlockedUntil)
					require.False(t, block.BlockedUntil.After(bound), block.BlockedUntil)
					return !block.BlockedUntil.Before(least)
				})
			}
		})
	}
}
