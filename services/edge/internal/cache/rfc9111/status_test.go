package rfc9111

import (
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// TestCacheStatus pins the values, and that they are the list of structured fields that RFC 9211 wants.
func TestCacheStatus(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]CacheStatus{
		"ccnq; hit; ttl=59":                                 {TTL: 59*time.Second + 999*time.Millisecond},
		"ccnq; hit; ttl=-1":                                 {TTL: -time.Millisecond},
		"ccnq; hit; ttl=-2":                                 {TTL: -2 * time.Second},
		"ccnq; fwd=uri-miss; ttl=60; stored":                {Forward: ForwardURIMiss, Stored: true, TTL: time.Minute},
		"ccnq; fwd=bypass":                                  {Forward: ForwardBypass},
		"ccnq; fwd=uri-miss; collapsed":                     {Forward: ForwardURIMiss, Collapsed: true},
		"ccnq; fwd=stale; fwd-status=304; ttl=5; stored":    {Forward: ForwardStale, Status: 304, Stored: true, TTL: 5 * time.Second},
		"ccnq; fwd=vary-miss; ttl=5; stored; collapsed":     {Forward: ForwardVaryMiss, Stored: true, TTL: 5 * time.Second, Collapsed: true},
		"ccnq; fwd=stale; fwd-status=503":                   {Forward: ForwardStale, Status: 503},
		"ccnq; fwd=uri-miss; fwd-status=200; ttl=0; stored": {Forward: ForwardURIMiss, Status: 200, Stored: true},
		"ccnq; fwd=method":                                  {Forward: ForwardMethod},
		"ccnq; fwd=request":                                 {Forward: ForwardRequest},
		"ccnq; fwd=partial; fwd-status=206":                 {Forward: ForwardPartial, Status: 206},
	} {
		require.Equal(t, want, s.String())
		list, err := httpsfv.UnmarshalList([]string{s.String()})
		require.NoError(t, err)
		require.Len(t, list, 1)
		item, ok := list[0].(httpsfv.Item)
		require.True(t, ok)
		require.Equal(t, httpsfv.Token("ccnq"), item.Value)
		hit, isHit := item.Params.Get("hit")
		fwd, isForwarded := item.Params.Get("fwd")
		require.NotEqual(t, isHit, isForwarded)
		if isHit {
			require.Equal(t, true, hit)
		} else {
			require.IsType(t, httpsfv.Token(""), fwd)
		}
		if ttl, ok := item.Params.Get("ttl"); ok {
			require.IsType(t, int64(0), ttl)
		}
	}
}

func TestAppendAge(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0 5 0 2147483648", string(AppendAge(append(AppendAge(append(AppendAge(append(AppendAge(nil,
		0), ' '), 5999*time.Millisecond), ' '), -time.Second), ' '), forever)))
}
