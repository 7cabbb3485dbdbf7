package cache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

func TestOwnFields(t *testing.T) {
	t.Parallel()
	h := newHead(&rfc9111.Response{Status: 200, Header: map[string][]string{cacheStatus: {"far; hit"}}})
	for _, c := range []struct {
		age, ttl time.Duration
		want     [2]string
	}{
		{1500 * time.Millisecond, 500 * time.Millisecond, [2]string{"1", "ccnq; hit; ttl=0"}},
		{1700 * time.Millisecond, 300 * time.Millisecond, [2]string{"1", "ccnq; hit; ttl=0"}},
		{1900 * time.Millisecond, -300 * time.Millisecond, [2]string{"1", "ccnq; hit; ttl=-1"}},
		{2 * time.Second, -300 * time.Millisecond, [2]string{"2", "ccnq; hit; ttl=-1"}},
		{2 * time.Second, -time.Second, [2]string{"2", "ccnq; hit; ttl=-1"}},
	} {
		own := h.own(rfc9111.CacheStatus{TTL: c.ttl}, c.age, 17)
		require.Equal(t, []string{c.want[0]}, own.age)
		require.Equal(t, []string{"far; hit", c.want[1]}, own.status)
		require.Equal(t, []string{"17"}, own.length)
	}
	hit := rfc9111.CacheStatus{TTL: time.Minute}
	first := h.own(hit, time.Second, 17)
	require.Same(t, first, h.own(hit, time.Second+time.Millisecond, 17), "within a second")
	other := h.own(rfc9111.CacheStatus{TTL: time.Minute, Collapsed: true}, time.Second, 17)
	require.Equal(t, []string{"far; hit", "ccnq; hit; ttl=60; collapsed"}, other.status, "no hit's")
	require.Same(t, first, h.own(hit, time.Second, 17))
}
