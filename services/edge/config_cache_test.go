package edge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCacheDefaultsAreTheSeeds(t *testing.T) {
	t.Parallel()
	c, err := load()
	require.NoError(t, err)
	require.False(t, c.Cache.Enabled)
	require.Equal(t, "./data/cache", c.Cache.Dir)
	require.EqualValues(t, 1<<30, c.Cache.MaxSize)
	require.EqualValues(t, 10<<20, c.Cache.MaxItem)
	require.EqualValues(t, []string{"GET", "HEAD"}, c.Cache.Methods)
	require.Equal(t, time.Minute, c.Cache.Sweep.Duration())
	policy := c.Cache.policy()
	require.Equal(t, time.Minute, policy.TTL)
	require.False(t, policy.IgnoreCacheControl)
	require.False(t, policy.IgnoreQuery)
	require.False(t, policy.StripSetCookie)
	require.Empty(t, policy.VaryHeaders)
}

func TestCacheSettings(t *testing.T) {
	t.Parallel()
	c, err := load(
		"CCNQ_CACHE_ENABLED=true", "CCNQ_CACHE_RULES_FILE=rules.json", "CCNQ_CACHE_METHODS=get",
		"CCNQ_CACHE_TTL_MS=0", "CCNQ_CACHE_RESPECT_CACHE_CONTROL=false", "CCNQ_CACHE_KEY_INCLUDE_QUERY=false",
		"CCNQ_CACHE_STRIP_SET_COOKIE=true", "CCNQ_CACHE_VARY_HEADERS=Accept-Encoding, X-Tenant", "CCNQ_CACHE_MEMORY_BYTES=0",
	)
	require.NoError(t, err)
	policy := c.Cache.policy()
	require.Zero(t, policy.TTL)
	require.True(t, policy.IgnoreCacheControl)
	require.True(t, policy.IgnoreQuery)
	require.True(t, policy.StripSetCookie)
	require.Equal(t, []string{"Accept-Encoding", "X-Tenant"}, policy.VaryHeaders)
	require.EqualValues(t, []string{"GET"}, c.Cache.Methods)
}

func TestCacheSettingsThatStopTheStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		setting, message string
	}{
		{"CCNQ_CACHE_ENABLED=true", "CCNQ_CACHE_RULES_FILE: required"},
		{"CCNQ_CACHE_METHODS=GET,POST", `CCNQ_CACHE_METHODS: "POST"`},
		{"CCNQ_CACHE_MAX_SIZE_BYTES=1000", "CCNQ_CACHE_MAX_SIZE_BYTES"},
		{"CCNQ_CACHE_MAX_ITEM_SIZE_BYTES=0", "CCNQ_CACHE_MAX_ITEM_SIZE_BYTES"},
		{"CCNQ_CACHE_VARY_HEADERS=Accept Encoding", `CCNQ_CACHE_VARY_HEADERS: "Accept Encoding"`},
		{"CCNQ_CACHE_TTL_MS=-1", "CCNQ_CACHE_TTL_MS"},
		{"CCNQ_CACHE_MEMORY_BYTES=-1", "CCNQ_CACHE_MEMORY_BYTES"},
	} {
		_, err := load(tt.setting)
		require.ErrorContains(t, err, tt.message, tt.setting)
	}
}
